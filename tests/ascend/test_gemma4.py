"""Gemma 4 with its assistant on NPUs: in graphs and without, with one row per request.

Answers are a CPU's without speculation, token for token, and drafts are worth as much as there.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import CPU, NPU
from tests.ascend.processes import ACCEPTED, DRAFTED, tokens_of
from tests.ascend.rows import assert_one_row_each
from tests.ascend.targets.gemma4 import GEMMA4_BY_DAY, GEMMA4_CASES
from tests.ascend.test_matrix import NPU_PLATFORM, assert_some_drafts_are_accepted
from tests.ascend.test_mixtures import TOLERANCE, expected_of
from tests.engines import assert_same

pytestmark = pytest.mark.timeout(900)
# Steps that are scheduled ahead do not know on the host what was rejected, and vllm-ascend's
# attention reads the lengths there: draft steps 2 to K see rejected tokens, too.
TOLERANCE_AHEAD = 0.06
CASES = [
    pytest.param(name, marks=() if name in GEMMA4_BY_DAY else pytest.mark.nightly)
    for name in GEMMA4_CASES
]
WATCHED = [each for each in CASES if GEMMA4_CASES[each.values[0]].watched]


@pytest.mark.parametrize("name", CASES)
def test_answers_are_a_cpus_without_speculation(name: str, run_engine: Any) -> None:
    case = GEMMA4_CASES[name]
    outcome = run_engine(case, NPU)
    assert outcome["platform"] == NPU_PLATFORM
    expected = expected_of(case, run_engine)
    for kind in case.requests:
        if kind != "seeded":
            wanted = "greedy" if kind == "alone" else kind
            assert_same(tokens_of(outcome, kind), tokens_of(expected, wanted))
    assert_some_drafts_are_accepted(outcome["counters"])


@pytest.mark.parametrize("name", CASES)
def test_drafts_are_worth_as_much_as_on_a_cpu(name: str, run_engine: Any) -> None:
    case = GEMMA4_CASES[name]
    here = run_engine(case, NPU)["counters_of"]["greedy"]
    there = run_engine(case.for_cpu(), CPU)["counters_of"]["greedy"]
    is_ahead = case.engine.get("async_scheduling")
    tolerance = TOLERANCE_AHEAD if is_ahead else TOLERANCE[case.devices]
    assert here[DRAFTED] == pytest.approx(there[DRAFTED], rel=tolerance)
    assert here[ACCEPTED] == pytest.approx(there[ACCEPTED], rel=tolerance)


@pytest.mark.parametrize("name", WATCHED)
def test_later_draft_steps_have_one_row_per_request(name: str, run_engine: Any) -> None:
    case = GEMMA4_CASES[name]
    assert_one_row_each(case, run_engine(case, NPU))


@pytest.mark.nightly
def test_a_seed_draws_the_same_in_every_mode(run_engine: Any) -> None:
    for mode in ("full_decode_only", "default"):
        case = GEMMA4_CASES[f"gemma4-{mode}"]
        drawn = tokens_of(run_engine(case, NPU), "seeded")
        assert drawn == tokens_of(run_engine(case.for_cpu(), CPU), "seeded")
