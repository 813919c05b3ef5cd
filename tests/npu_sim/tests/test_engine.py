"""Plain vllm-ascend, without any other plugin, gives the tokens of Hugging Face on the CPU."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import engine
import pytest

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm_ascend") is None, reason="vllm-ascend is not installed"
    ),
]

ENGINE = Path(__file__).with_name("engine.py")
EAGER = {"enforce_eager": True}
FULL = {
    "compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [2, 4]}
}
# Other platforms that are installed beside vllm-ascend's must not answer.
PLUGINS = "ascend,ascend_kv_connector,ascend_model_loader,ascend_service_profiling,ascend_model"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "NPU_SIM_DEVICES": "2",
    "VLLM_PLUGINS": PLUGINS,
}
# Variables that nothing reads before an engine starts, with what they are before.
READ_LATE = {"NPU_SIM_WRONG_OP": "", "VLLM_USE_V2_MODEL_RUNNER": "0"}
TIME_LIMIT_S = 800


def start(*arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ENGINE), *arguments],
        env={**os.environ, **ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    start("make", str(folder), NPU_SIM="0")
    return folder


@pytest.fixture(scope="module")
def expected(model):
    return json.loads((model / "expected.json").read_text())


@pytest.fixture(scope="module")
def copy():
    """Return what copies a process that has imported vLLM, which takes longer than an engine."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["imported"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, **READ_LATE}.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(ENGINE.parent), prepend=os.pathsep)
        forkserver.ensure_running()

    def run(log, environment, *arguments):
        process = context.Process(target=engine.run_in_copy, args=(log, environment, arguments))
        process.start()
        process.join(TIME_LIMIT_S)
        process.kill()
        process.join()
        assert process.exitcode == 0, log.read_text()[-4000:]

    return run


@pytest.fixture
def generate(model, tmp_path, copy):
    def run(options, **environment):
        output = tmp_path / "outcome.json"
        if READ_LATE.keys() >= environment.keys():
            copy(tmp_path / "log", environment, model, output, options)
        else:
            start("run", str(model), str(output), json.dumps(options), **environment)
        return json.loads(output.read_text())

    return run


# By day prompts run without graphs in the next test; so do the references of tests/ascend.
@pytest.mark.nightly
def test_eager(generate, expected):
    outcome = generate(EAGER)
    assert not outcome["is_v2"]
    assert outcome["tokens"] == expected
    assert outcome["replays"] == 0
    assert outcome["ops_launched"] > 0


def test_full_graphs(generate, expected):
    outcome = generate(FULL)
    assert outcome["tokens"] == expected
    # Two layers' attention is updated during each replay, which waits for it.
    assert outcome["replays"] > 0
    assert outcome["pauses"] == 2 * outcome["replays"]
    assert outcome["ops_replayed"] > 10 * outcome["replays"]


@pytest.mark.nightly
def test_runner_v2(generate, expected):
    outcome = generate(EAGER, VLLM_USE_V2_MODEL_RUNNER="1")
    assert outcome["is_v2"]
    assert outcome["tokens"] == expected


@pytest.mark.nightly  # by day tests/ascend drafts in full graphs, with the runner that it needs
def test_runner_v2_with_eagle_and_graphs(generate, expected, model):
    drafts = {"method": "eagle", "model": str(model / "head"), "num_speculative_tokens": 2}
    graphs = {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [3, 12]}
    options = {"speculative_config": drafts, "compilation_config": graphs}
    outcome = generate(options, VLLM_USE_V2_MODEL_RUNNER="1")
    assert outcome["is_v2"]
    assert outcome["tokens"] == expected
    assert outcome["replays"] > 0


@pytest.mark.nightly
def test_with_the_task_queue(generate, expected):
    outcome = generate(FULL, TASK_QUEUE_ENABLE="1")
    assert outcome["tokens"] == expected
    assert outcome["replays"] > 0


# By day tests/ascend/test_matrix.py has two, in full graphs.
@pytest.mark.nightly
@pytest.mark.parametrize("mode", [EAGER, FULL], ids=["eager", "full graphs"])
def test_two_devices(generate, expected, mode):
    # vLLM's all_reduce returns its input, which PyTorch refuses where CI is set.
    allowed = {"TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING": "0"}
    outcome = generate({**mode, "tensor_parallel_size": 2}, **allowed)
    assert outcome["tokens"] == expected


@pytest.mark.parametrize(
    ("mode", "op"),
    [
        pytest.param(EAGER, "npu::npu_fused_infer_attention_score", marks=pytest.mark.nightly),
        (FULL, "npu::npu_fused_infer_attention_score.out"),
    ],
    ids=["eager", "full graphs"],
)
def test_a_wrong_op_changes_the_tokens(generate, expected, mode, op):
    """The negative control: comparing tokens would notice."""
    assert generate(mode, NPU_SIM_WRONG_OP=op)["tokens"] != expected
