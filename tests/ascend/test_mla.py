"""A target with DeepSeek's attention (MLA) and its MTP layer.

The reference is the same NPU without speculation: vllm-ascend reads prompts in bfloat16 whatever
the dtype is. Everything after the prompt is float32 here, so that answers can be compared exactly.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import CPU, NPU
from tests.ascend.matrix import EXACT, MLA_CASES, MLA_ENVIRONMENT, MODES, Case
from tests.ascend.processes import ACCEPTED, DRAFTED, assert_same_drafts
from tests.ascend.test_matrix import (
    NPU_PLATFORM,
    assert_close,
    assert_some_drafts_are_accepted,
    tokens,
)
from tests.engines import assert_same
from tests.npu.answers import compare

CHUNKED = MLA_CASES["deepseek-chunked"]
ENVIRONMENT = {**NPU, **MLA_ENVIRONMENT}
TOLERANCE = 0.02
pytestmark = pytest.mark.timeout(900)


def without_speculation(case: Case, requests: tuple[str, ...]) -> Case:
    """Return the reference of a case."""
    engine = {**case.engine, "model": case.arguments()["model"]}
    return Case(method=None, mode="eager", engine=engine, requests=requests)


@pytest.mark.parametrize("mode", MODES)
def test_answers_are_those_without_speculation(mode: str, run_engine: Any) -> None:
    case = MLA_CASES[f"deepseek-{mode}"]
    outcome = run_engine(case, ENVIRONMENT)
    assert outcome["platform"] == NPU_PLATFORM
    answers = outcome["answers"]
    reference = without_speculation(case, (*EXACT, "logprobs"))
    expected = run_engine(reference, ENVIRONMENT)["answers"]
    for kind in [kind for kind in case.requests if kind in EXACT]:
        assert_same(tokens(answers[kind]), tokens(expected[kind]))
    if "logprobs" in answers:
        assert_close(answers["logprobs"], expected["logprobs"])
    assert_some_drafts_are_accepted(outcome["counters"])


def test_seeds_repeat_in_other_batches_and_modes(run_engine: Any) -> None:
    outcomes = [run_engine(MLA_CASES[f"deepseek-{mode}"], ENVIRONMENT) for mode in MODES]
    seeded = [tokens(outcome["answers"]["seeded"]) for outcome in outcomes]
    seeded += [tokens(o["answers"]["seeded_in_twos"]) for o in outcomes if len(o["answers"]) > 2]
    assert len(seeded) == len(MODES) + 1
    for others in seeded[1:]:
        assert_same(others, seeded[0])
    assert seeded[0] != tokens(outcomes[0]["answers"]["greedy"])


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "eager"])
def test_drafts_are_those_of_an_engine_without_graphs(mode: str, run_engine: Any) -> None:
    found, wanted = (MLA_CASES[f"deepseek-{name}"] for name in (mode, "eager"))
    assert_same_drafts(run_engine(found, ENVIRONMENT), run_engine(wanted, ENVIRONMENT), "greedy")


def test_as_many_drafts_are_accepted_as_on_a_cpu(run_engine: Any) -> None:
    """About: prompts are read in bfloat16 here, so that texts may differ."""
    case = MLA_CASES["deepseek-eager"]
    here = run_engine(case, ENVIRONMENT)["counters_of"]["greedy"]
    there = run_engine(case.for_cpu(), CPU)["counters_of"]["greedy"]
    assert here[DRAFTED] == pytest.approx(there[DRAFTED], rel=TOLERANCE)
    assert here[ACCEPTED] == pytest.approx(there[ACCEPTED], rel=TOLERANCE)
    assert here[ACCEPTED] > 0


def test_prompts_in_pieces(run_engine: Any) -> None:
    """In bfloat16, where answers may part at a tie."""
    outcome = run_engine(CHUNKED, ENVIRONMENT)
    reference = without_speculation(CHUNKED, ("greedy",))
    expected = run_engine(reference, ENVIRONMENT, logprobs=5)["answers"]["greedy"]
    for actual, wanted in zip(outcome["answers"]["greedy"], expected, strict=True):
        found = compare(actual, wanted)
        assert found.is_right, found
    assert_some_drafts_are_accepted(outcome["counters"])
