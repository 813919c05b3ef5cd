"""What ``check`` says for an NPU is what an engine on one does, and for a CPU likewise."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ascend.matrix import ENGINE, Case
from tests.ascend.processes import Outcome, Run, tokens_of
from tests.engines import assert_same
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.errors import AscendSpecError

EAGLE = SPECS["eagle"]
SAMPLED = {**EAGLE, "draft_sample_method": "probabilistic"}
SCHEDULE = {**EAGLE, "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 1]]}
GRAPHS = {"cudagraph_capture_sizes": [4, 16, 32]}
EAGER = {"enforce_eager": True}
NGRAM = SPECS["ngram"]
# By name: speculative config, additional config, other options of the engine, the one refused.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str | None]] = {
    "eagle": (EAGLE, {}, {}, None),
    "eager": (EAGLE, {}, EAGER, None),
    "ngram": (NGRAM, {}, {}, None),
    "fused": (EAGLE, {"ascend_spec": {"draft_loop": "fused"}}, EAGER, "draft_loop"),
    "ours": (EAGLE, {"ascend_spec": {"draft_loop": "ours"}}, EAGER, None),
    "stock": (EAGLE, {"ascend_spec": {"draft_loop": "stock"}}, EAGER, None),
    "attention": ({**EAGLE, "attention_backend": "CUSTOM"}, {}, EAGER, "attention_backend"),
    "argmax": (
        {**EAGLE, "use_local_argmax_reduction": True},
        {},
        EAGER,
        "use_local_argmax_reduction",
    ),
    "quantization": ({**EAGLE, "quantization": "fp8"}, {}, EAGER, "quantization"),
    "vocabulary": (
        {**SPECS["draft_model"], "use_heterogeneous_vocab": True},
        {},
        EAGER,
        "use_heterogeneous_vocab",
    ),
    "lossy block": (
        NGRAM,
        {"rejection_sampler_config": {"enable_block_verify": True}},
        EAGER,
        "enable_block_verify",
    ),
    "lossy entropy": (
        NGRAM,
        {"rejection_sampler_config": {"enable_entropy_verify": True}},
        EAGER,
        "enable_entropy_verify",
    ),
    "sampled": (SAMPLED, {}, {}, "draft_sample_method"),
    "sampled, eager": (SAMPLED, {}, EAGER, None),
    "sampled, draft eager": ({**SAMPLED, **EAGER}, {}, {}, None),
    "sampled, piecewise": (
        SAMPLED,
        {},
        {"compilation_config": {**GRAPHS, "cudagraph_mode": "PIECEWISE"}},
        None,
    ),
    "sampled, full decode": (
        SAMPLED,
        {},
        {"compilation_config": {**GRAPHS, "cudagraph_mode": "FULL_DECODE_ONLY"}},
        "draft_sample_method",
    ),
    "full": (
        EAGLE,
        {},
        {"compilation_config": {**GRAPHS, "cudagraph_mode": "FULL"}},
        "cudagraph_mode",
    ),
    "schedule": (SCHEDULE, {}, {}, None),
}


def refused_by_check(name: str, capsys: pytest.CaptureFixture[str]) -> str | None:
    """Return the option that ``check`` refuses."""
    from vllm_ascend_spec.cli.main import main

    spec, additional, engine, _ = CASES[name]
    arguments = ["check", "--light", TARGET, "--speculative-config", json.dumps(spec)]
    arguments += ["--additional-config", json.dumps(additional)]
    for option, value in engine.items():
        arguments.append("--" + option.replace("_", "-"))
        arguments += [] if value is True else [json.dumps(value)]
    status = main(arguments)
    (line, *_) = capsys.readouterr().err.splitlines() or [""]
    assert status == (2 if line else 0)
    return option_of(line.partition("error: ")[2]) if line else None


def refused_by_the_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return the option that the platform or the proposer refuses, without our checks before."""
    from vllm.config import CompilationMode, CUDAGraphMode
    from vllm.engine.arg_utils import EngineArgs

    from vllm_ascend_spec.config.ascend import samples_drafts
    from vllm_ascend_spec.hooks import engine_hook
    from vllm_ascend_spec.methods.loops.ascend.limits import require_possible

    spec, additional, engine, _ = CASES[name]
    arguments = {**ENGINE, **engine, "speculative_config": spec, "additional_config": additional}
    monkeypatch.setattr(engine_hook, "resolve_args", lambda args, **_: None)
    try:
        config = EngineArgs(**arguments).create_engine_config()
        if spec["method"] in ("eagle", "draft_model"):
            compilation, drafts = config.compilation_config, config.speculative_config
            # As vllm-ascend's runner and its proposer tell.
            uses_graphs = (
                compilation.cudagraph_mode != CUDAGraphMode.NONE
                and compilation.mode == CompilationMode.VLLM_COMPILE
                and not config.model_config.enforce_eager
                and not drafts.enforce_eager
            )
            proposer = SimpleNamespace(
                compilation_config=compilation,
                use_cuda_graph=uses_graphs,
                speculative_config=drafts,
                _enable_probabilistic_draft_probs=samples_drafts(lambda key: getattr(drafts, key)),
            )
            require_possible(proposer)
    except (AscendSpecError, ValueError) as error:
        return option_of(str(error))
    return None


def option_of(message: str) -> str:
    """Return the last part of the option's name; pydantic writes lines of its own around ours."""
    ours = next(line for line in message.splitlines() if "_config." in line)
    return ours.partition("=")[0].rpartition(".")[2]


@pytest.mark.parametrize("name", CASES)
def test_check_says_what_an_engine_on_an_npu_does(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = CASES[name][-1]
    assert refused_by_check(name, capsys) == wanted
    assert refused_by_the_engine(name, monkeypatch) == wanted


def test_our_section_reaches_an_engine(run_engine: Run, on_cpu: Outcome) -> None:
    options = {"ascend_spec": {"verify_rule": "block", "draft_loop": "stock"}}
    engine = {"additional_config": options}
    outcome = run_engine(Case(method="eagle", mode="eager", engine=engine))
    assert outcome["counters"]["vllm:spec_decode_num_accepted_tokens"] > 0
    assert_same(tokens_of(outcome, "greedy"), tokens_of(on_cpu, "greedy"))


# Of the NPU alone; what is left is refused on a CPU, too, or is vllm-ascend's and nobody's there.
ONLY_ON_AN_NPU = set(CASES) - {"attention", "fused"}


@pytest.mark.parametrize("name", CASES)
def test_a_cpu_refuses_what_is_of_no_use_to_it(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ASCEND_SPEC_DEVICE", "cpu")
    refused = refused_by_check(name, capsys)
    assert refused == (None if name in ONLY_ON_AN_NPU else CASES[name][-1])
