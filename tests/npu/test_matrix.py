"""Every method in every mode answers as the same NPU does without speculation.

    eval "$(vllm-ascend-spec env)" && pytest tests/npu

Differences from tests/ascend: the NPU is the reference, there is no build of vLLM for a CPU beside
it; bfloat16, which Ascend's attention takes, so that answers may part at a tie (answers.py); seeds
repeat in equal batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.matrix import CASES, CHOICES, EXACT, Case
from tests.npu.answers import compare
from tests.npu.silicon import ENVIRONMENT, devices, requires_npu

DTYPE = "bfloat16"
# A near tie of two samples does not show in logprobs, as one of greedy tokens does.
JUDGED = tuple(kind for kind in EXACT if kind != "seeded")
NPU_PLATFORM = "SpecNpuPlatform"
pytestmark = [requires_npu, pytest.mark.npu, pytest.mark.timeout(1800)]


def in_bfloat16(case: Case, **changes: Any) -> Case:
    return replace(case, **{"engine": {**case.engine, "dtype": DTYPE}, **changes})


def without_speculation(case: Case) -> Case:
    """Return the reference of a case: everything as vllm-ascend has it, one token a step."""
    end = {name: value for name, value in case.engine.items() if name == "max_model_len"}
    return Case(
        method=None,
        mode=case.mode,
        devices=case.devices,
        engine={"dtype": DTYPE, **end},
        requests=JUDGED,
    )


@pytest.mark.parametrize("name", CASES)
def test_answers(name: str, run_engine: Any) -> None:
    case = CASES[name]
    if case.devices > devices():
        pytest.skip(f"needs {case.devices} NPUs, there are {devices()}")
    outcome = run_engine(in_bfloat16(case), ENVIRONMENT)
    assert outcome["platform"] == NPU_PLATFORM
    reference = run_engine(without_speculation(case), ENVIRONMENT, logprobs=5)
    for kind in [kind for kind in case.requests if kind in JUDGED]:
        judge(kind, outcome["answers"][kind], reference["answers"][kind])
    if "structured" in case.requests:
        assert {answer["text"] for answer in outcome["answers"]["structured"]} <= set(CHOICES)
    assert_drafts(outcome["counters"])
    if "preemption" in name:
        assert outcome["counters"]["vllm:num_preemptions"] > 0


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if "seeded" in case.requests]
)
def test_seeds_repeat(name: str, run_engine: Any) -> None:
    """In two engines: what runs beside a request is the same in both."""
    case = in_bfloat16(CASES[name], requests=("greedy", "seeded"))
    first, second = (run_engine(case, ENVIRONMENT, turn=turn)["answers"] for turn in (1, 2))
    assert tokens(first["seeded"]) == tokens(second["seeded"])
    assert tokens(first["seeded"]) != tokens(first["greedy"])


def tokens(answers: list[dict[str, Any]]) -> list[list[int]]:
    return [answer["tokens"] for answer in answers]


def judge(kind: str, actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    comparisons = [compare(a, b) for a, b in zip(actual, expected, strict=True)]
    parted = {i: c for i, c in enumerate(comparisons) if c.gap is not None}
    print(f"{kind}: {len(comparisons) - len(parted)} of {len(comparisons)} equal; {parted}")
    assert not {i: c for i, c in parted.items() if not c.is_right}


def assert_drafts(counters: Mapping[str, float]) -> None:
    """An engine that never drafts, or accepts nothing, would answer rightly, too."""
    drafted = counters["vllm:spec_decode_num_draft_tokens"]
    assert 0.1 * drafted < counters["vllm:spec_decode_num_accepted_tokens"] < drafted
