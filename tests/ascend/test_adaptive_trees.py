"""K chosen among chains and trees on the simulated NPU: graphs of each, and steps ahead, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import Case
from tests.ascend.processes import tokens_of
from tests.ascend.test_graph_steps import READS_PROMPTS
from tests.ascend.test_trees import TREES, beside
from tests.engines import assert_same
from tests.marks import unless
from vllm_ascend_spec.upstream.limits import FIXED_K, NO_TREES

pytestmark = [unless(FIXED_K or NO_TREES), pytest.mark.nightly, pytest.mark.timeout(900)]

# Harder than any chooser: chains, parts of the tree, all of it, and nothing.
CHOSEN = {"eagle3": [15, 3, 0, 10, 15, 5, 0, 10, 1], "medusa": [12, 0, 4, 8, 12, 1]}


@pytest.mark.parametrize(
    ("method", "mode", "is_ahead"),
    [
        ("eagle3", "full_decode_only", True),
        ("eagle3", "full_decode_only", False),
        ("eagle3", "eager", True),
        ("medusa", "full_decode_only", False),
    ],
)
def test_answers_are_those_of_no_speculation(
    method: str, mode: str, is_ahead: bool, run_engine: Any, on_cpu: Any
) -> None:
    section, size = TREES[method]
    case = Case(
        method=method,
        mode=mode,
        engine={
            "additional_config": {"ascend_spec": {**section, "draft_length": "adaptive"}},
            "async_scheduling": is_ahead,
        },
        options={"num_speculative_tokens": size},
        requests=("greedy", "seeded"),
    )
    outcome = run_engine(case, has_trees=True, chosen=CHOSEN[method])
    for kind in case.requests:
        assert_same(tokens_of(outcome, kind), tokens_of(on_cpu, kind))
    assert {int(k) for k in outcome["lengths"]} >= set(CHOSEN[method])
    assert beside(outcome)
    if mode == "full_decode_only":
        steps = outcome["graph_steps_of"]["greedy"]
        assert steps["full"] > 0
        missed = {name for name, n in steps.items() if name.startswith("none") and n}
        assert missed <= {READS_PROMPTS}
