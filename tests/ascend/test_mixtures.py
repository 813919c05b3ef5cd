"""Targets with experts: a Qwen3-MoE, also over two NPUs, and a gpt-oss with windows and sinks.

Answers are a CPU's without speculation, token for token. Where two NPUs add up a layer's parts,
sums are added in another order, so a draft may be another one there.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import CPU, NPU
from tests.ascend.matrix import Case
from tests.ascend.processes import ACCEPTED, DRAFTED, tokens_of
from tests.ascend.rows import assert_one_row_each
from tests.ascend.targets.mixtures import MIXTURE_CASES, MIXTURES_BY_DAY
from tests.ascend.test_matrix import NPU_PLATFORM, assert_some_drafts_are_accepted
from tests.engines import assert_same
from tests.zoo import MIXTURES

pytestmark = pytest.mark.timeout(900)
# Several NPUs may draft otherwise where two tokens are as likely.
TOLERANCE = {1: 0.02, 2: 0.05, 4: 0.05}
CASES = [
    pytest.param(name, marks=() if name in MIXTURES_BY_DAY else pytest.mark.nightly)
    for name in MIXTURE_CASES
]


def without_speculation(case: Case) -> Case:
    """Return an engine of the same target."""
    engine = {"model": case.engine["model"]}
    return Case(method=None, mode="eager", engine=engine, requests=("greedy", "crowd"))


def expected_of(case: Case, run_engine: Any) -> dict[str, Any]:
    """Return what a CPU answers without speculation."""
    return run_engine(without_speculation(case), CPU)


def test_windows_and_sinks_are_right_without_speculation(run_engine: Any) -> None:
    """vllm-ascend's faults in them are mended there, too: speculation changes no answer."""
    plain = without_speculation(MIXTURE_CASES["gpt-oss-eagle3-full_decode_only"])
    here, there = run_engine(plain, NPU), run_engine(plain, CPU)
    for kind in plain.requests:
        assert_same(tokens_of(here, kind), tokens_of(there, kind))


@pytest.mark.parametrize("name", CASES)
def test_answers_are_a_cpus_without_speculation(name: str, run_engine: Any) -> None:
    case = MIXTURE_CASES[name]
    outcome = run_engine(case, NPU)
    assert outcome["platform"] == NPU_PLATFORM
    expected = expected_of(case, run_engine)
    for kind in case.requests:
        if kind != "seeded":
            wanted = "greedy" if kind == "alone" else kind
            assert_same(tokens_of(outcome, kind), tokens_of(expected, wanted))
    assert_some_drafts_are_accepted(outcome["counters"])


@pytest.mark.parametrize("name", [each for each in CASES if "-eagle3-" in each.values[0]])
def test_drafts_are_worth_as_much_as_on_a_cpu(name: str, run_engine: Any) -> None:
    case = MIXTURE_CASES[name]
    here = run_engine(case, NPU)["counters_of"]["greedy"]
    there = run_engine(case.for_cpu(), CPU)["counters_of"]["greedy"]
    tolerance = TOLERANCE[case.devices]
    assert here[DRAFTED] == pytest.approx(there[DRAFTED], rel=tolerance)
    assert here[ACCEPTED] == pytest.approx(there[ACCEPTED], rel=tolerance)


WATCHED = [each for each in CASES if MIXTURE_CASES[each.values[0]].watched]


@pytest.mark.parametrize("name", WATCHED)
def test_later_draft_steps_have_one_row_per_request(name: str, run_engine: Any) -> None:
    case = MIXTURE_CASES[name]
    assert_one_row_each(case, run_engine(case, NPU))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.nightly) for n in MIXTURES])
def test_a_seed_draws_the_same_in_every_mode(name: str, run_engine: Any) -> None:
    graphs = [MIXTURE_CASES[f"{name}-eagle3-{mode}"] for mode in ("full_decode_only", "default")]
    first, second = (tokens_of(run_engine(case, NPU), "seeded") for case in graphs)
    assert first == tokens_of(run_engine(graphs[0].for_cpu(), CPU), "seeded")
    assert second == tokens_of(run_engine(graphs[1].for_cpu(), CPU), "seeded")
