"""Ranks that Ray starts, on one machine: docs/recipes/replicas.md has it for several."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.ascend.environment import CPU, NPU
from tests.ascend.matrix import Case
from tests.ascend.processes import Run, tokens_of
from tests.ascend.test_matrix import assert_some_drafts_are_accepted
from tests.engines import assert_same

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed (pip install ray)"
    ),
]
# What a machine with two NPUs tells Ray.
MACHINE = {
    **NPU,
    "RAY_OVERRIDE_RESOURCES": json.dumps({"NPU": 2}),
    "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
BY_RAY = {"distributed_executor_backend": "ray"}


def test_two_ranks_answer_as_a_cpu_without_speculation(run_engine: Run) -> None:
    case = Case(method="eagle3", mode="eager", engine=BY_RAY, devices=2)
    found = run_engine(case, MACHINE)
    expected = run_engine(Case(method=None, mode="eager"), CPU)
    assert_same(tokens_of(found, "greedy"), tokens_of(expected, "greedy"))
    assert_some_drafts_are_accepted(found["counters"])
