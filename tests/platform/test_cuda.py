"""vLLM's own configuration and worker for CUDA, with our platform, in a process without a GPU.

How far it reaches: everything from an engine's arguments to the model runner's constructor is the
code that runs on a GPU, but for what a driver says of the GPU (fake_cuda.py). A model runner on
a GPU's memory, its kernels and its graphs are out of reach here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.marks import requires_cpu_build
from tests.zoo import SPECS, TARGET, WITH_A_LOOP

pytestmark = requires_cpu_build
WORKER = "vllm_ascend_spec.worker.cuda.SpecGPUWorker"
RUNS_ON_V1 = "Model runner V1 is used, where vLLM would choose V2"
VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


def config(spec: dict[str, Any] | None, **more: Any) -> tuple[str, dict[str, Any]]:
    """Return the scenario of an engine's configuration."""
    arguments = {"model": TARGET, "dtype": "float32", "max_model_len": 512}
    given = {} if spec is None else {"speculative_config": spec}
    return "config", {"arguments": arguments | given, **more}


def trees(**arguments: Any) -> tuple[str, dict[str, Any]]:
    """Return the scenario of an engine with trees."""
    spec = {k: v for k, v in SPECS["ngram"].items() if k != "num_speculative_tokens"}
    job = config(spec)[1]
    more = {"additional_config": {"ascend_spec": {"tree": 15}}, **arguments}
    return "config", {**job, "arguments": job["arguments"] | more}


EAGLE = SPECS["eagle"]
VLLM_CHOOSES_V2 = ("eagle", "eagle3", "mtp", "dflash", "dspark", "hybrid")
# Their drafts stay on the device.
SCHEDULED_AHEAD = ("eagle", "eagle3", "mtp", "dflash", "dspark", "draft_model")
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    **{method: config(spec) for method, spec in SPECS.items()},
    "no speculation": config(None),
    "no patch": config(EAGLE, patch=False),
    "V1 chosen": config(EAGLE, environment={VARIABLE: "0"}),
    "V2 chosen": config(EAGLE, environment={VARIABLE: "1"}),
    "64 drafts": config({**EAGLE, "num_speculative_tokens": 64}),
    "65 drafts": config({**EAGLE, "num_speculative_tokens": 65}),
    "trees": trees(),
    "trees on Triton": trees(attention_backend="TRITON_ATTN"),
    "trees on another": trees(attention_backend="FLASH_ATTN"),
    "trees on another for some layers": trees(
        attention_config={"backend_per_kind": {"sliding_window": "FLASH_ATTN"}}
    ),
    "trees in a quantized cache": trees(kv_cache_dtype="fp8"),
    "trees over several devices": trees(
        decode_context_parallel_size=2, tensor_parallel_size=2, distributed_executor_backend="mp"
    ),
    "trees in two batches": trees(enable_dbo=True, enable_expert_parallel=False),
    "classes": ("classes", {}),
    "device": ("init_device", {"uses_v2": False}),
    "device of V2": ("init_device", {"uses_v2": True}),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    """Run every scenario in one process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.platform.fake_cuda"],
        input=json.dumps(list(JOBS.values())),
        env={name: value for name, value in os.environ.items() if name != VARIABLE},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(JOBS, found, strict=True))


@pytest.mark.parametrize("method", SPECS)
def test_a_draft_has_graphs_for_one_row_of_each_request(method: str, outcomes: Any) -> None:
    built = outcomes[method]
    rows = {int(size): wide for size, wide in built["draft_rows"].items()}
    assert bool(rows) == (method in {*WITH_A_LOOP, "hybrid"})
    width = SPECS[method]["num_speculative_tokens"] + 1
    most = built["max_num_seqs"] * width
    decode = [size for size in built["capture_sizes"] if size <= most]
    assert not rows or rows == {size: size // width for size in decode}


@pytest.mark.parametrize("method", SPECS)
def test_speculation_gets_our_worker_on_v1_and_graphs(method: str, outcomes: Any) -> None:
    built = outcomes[method]
    assert (built["worker"], built["uses_v2"]) == (WORKER, False)
    assert built["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    width = SPECS[method]["num_speculative_tokens"] + 1
    sizes = built["capture_sizes"]
    # Planned ones, for every batch of this engine, and vLLM's largest for batches with prompts.
    assert not any(size % width for size in sizes)
    assert sizes[-1] >= max(built["max_num_seqs"] * width, 512)
    assert built["is_async"] is (method in SCHEDULED_AHEAD)
    # What ours chose otherwise than vLLM is told in one line.
    assert len(built["told"]) == (method in VLLM_CHOOSES_V2)
    assert all(line.startswith(RUNS_ON_V1) for line in built["told"])


def test_without_the_patch_vllm_would_choose_v2(outcomes: Any) -> None:
    """Negative control."""
    assert outcomes["no patch"]["uses_v2"] is True


def test_an_engine_without_speculation_stays_vllms_own(outcomes: Any) -> None:
    built = outcomes["no speculation"]
    assert (built["worker"], built["uses_v2"]) == ("vllm.v1.worker.gpu_worker.Worker", True)
    assert built["told"] == []


def test_a_person_who_chose_v1_is_told_nothing(outcomes: Any) -> None:
    built = outcomes["V1 chosen"]
    assert (built["worker"], built["uses_v2"], built["told"]) == (WORKER, False, [])


def test_a_person_who_chose_v2_is_refused_by_name(outcomes: Any) -> None:
    error = outcomes["V2 chosen"]["error"]
    assert f"{VARIABLE}='1'" in error
    assert "speculates on V1" in error


def test_a_gpu_may_have_64_drafts(outcomes: Any) -> None:
    assert outcomes["64 drafts"]["worker"] == WORKER
    assert "from 1 to 64" in outcomes["65 drafts"]["error"]


def test_trees_choose_their_attention_and_keep_the_graphs(outcomes: Any) -> None:
    for name in ("trees", "trees on Triton"):
        built = outcomes[name]
        assert (built["attention_backend"], built["worker"]) == ("TRITON_ATTN", WORKER)
        assert built["cudagraph_mode"] == "FULL_AND_PIECEWISE"
        assert not any(size % 16 for size in built["capture_sizes"])
    assert outcomes["ngram"]["attention_backend"] is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("on another", "--attention-backend='FLASH_ATTN': not possible with additional_config."),
        ("on another for some layers", "backend_per_kind=AttentionBackendEnum.FLASH_ATTN yet"),
        ("in a quantized cache", "tree=15: not possible with kv_cache_dtype='fp8' yet"),
        ("over several devices", "tree=15: not possible with context parallelism yet"),
        ("in two batches", "tree=15: not possible with enable_dbo yet"),
    ],
)
def test_what_trees_are_not_possible_with_is_refused(name: str, words: str, outcomes: Any) -> None:
    error = outcomes[f"trees {name}"]["error"]
    assert words in error
    assert "leave" in error


def test_everything_is_imported_without_cuda(outcomes: Any) -> None:
    found = outcomes["classes"]
    assert found["worker"] is True
    assert found["platform"][3] in ("NvmlCudaPlatform", "NonNvmlCudaPlatform")
    runner = found["runner"]
    assert runner.index("SpecRunnerMixin") < runner.index("GPUModelRunner")
    assert runner.index("SeededSamplingMixin") < runner.index("GPUModelRunner")


def test_vllms_worker_builds_our_runner(outcomes: Any) -> None:
    assert outcomes["device"] == {"built": ["SpecGPUModelRunner"], "is_undone": True}


def test_our_worker_builds_no_runner_of_v2(outcomes: Any) -> None:
    error = outcomes["device of V2"]["error"]
    assert error.startswith("PlatformError: SpecGPUWorker builds model runner V1")
