"""K chosen among chains and trees on the simulated NPU: graphs of each, and steps ahead, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import Case
from tests.ascend.processes import tokens_of
from tests.ascend.test_graph_steps import READS_PROMPTS
from tests.ascend.test_trees import asked_of, beside
from tests.engines import assert_same
from tests.marks import unless
from vllm_ascend_spec.step_report import OTHER_K, UNEVEN
from vllm_ascend_spec.upstream.limits import FIXED_K, NO_TREES

pytestmark = [unless(FIXED_K or NO_TREES), pytest.mark.nightly, pytest.mark.timeout(900)]

# Harder than any chooser: chains, parts of the tree, all of it, and nothing.
CHOSEN = {
    "eagle": [15, 3, 0, 10, 15, 5, 0, 10, 1],
    # Parts in which drafts follow siblings.
    "eagle3": [9, 3, 0, 6, 9, 2, 0, 6, 1],
    "medusa": [12, 0, 4, 8, 12, 1],
}


@pytest.mark.parametrize(
    ("method", "is_full", "is_ahead"),
    [
        ("eagle", True, True),
        ("eagle3", True, False),
        ("eagle3", False, True),
        ("medusa", True, False),
    ],
)
def test_answers_are_those_of_no_speculation(
    method: str, is_full: bool, is_ahead: bool, run_engine: Any, on_cpu: Any
) -> None:
    section, options = asked_of(method)
    # Fewer graphs than batch sizes, so that some batches are padded.
    few = {"capture_graphs": 14} if is_full else {}
    engine: dict[str, Any] = {
        "additional_config": {"ascend_spec": {**section, **few, "draft_length": "adaptive"}},
        "async_scheduling": is_ahead,
    }
    if is_full:
        engine["compilation_config"] = {"cudagraph_mode": "FULL_DECODE_ONLY"}
    case = Case(
        method=method,
        mode="default" if is_full else "eager",
        engine=engine,
        options=options,
        requests=("greedy", "seeded"),
    )
    outcome = run_engine(case, has_trees=True, chosen=CHOSEN[method])
    for kind in case.requests:
        assert_same(tokens_of(outcome, kind), tokens_of(on_cpu, kind))
    assert {int(k) for k in outcome["lengths"]} >= set(CHOSEN[method])
    assert beside(outcome)
    if is_full:
        # All but those that read prompts, and those near an answer's end, which have fewer drafts.
        steps = outcome["graph_steps_of"]["greedy"]
        missed = {name: n for name, n in steps.items() if name.startswith("none") and n}
        assert missed.keys() <= {READS_PROMPTS, f"none {OTHER_K}", f"none {UNEVEN}"}
        ends = sum(n for name, n in missed.items() if name != READS_PROMPTS)
        assert steps["full"] > 4 * ends
