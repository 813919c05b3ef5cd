"""K chosen from step to step on the simulated NPU, where steps are scheduled ahead, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import Case
from tests.ascend.processes import tokens_of
from tests.engines import assert_same

ADAPTIVE = {"additional_config": {"ascend_spec": {"draft_length": "adaptive"}}}


@pytest.mark.parametrize(
    ("mode", "is_ahead", "scheduler"),
    [
        ("eager", True, "AdaptiveAsyncScheduler"),
        pytest.param("default", False, "AdaptiveScheduler", marks=pytest.mark.nightly),
    ],
)
def test_answers_are_those_of_no_speculation(
    mode: str, is_ahead: bool, scheduler: str, run_engine: Any, on_cpu: Any
) -> None:
    case = Case(method="eagle", mode=mode, engine={**ADAPTIVE, "async_scheduling": is_ahead})
    outcome = run_engine(case)
    assert outcome["scheduler"] == scheduler
    # Before the first request, with dummy ones.
    assert outcome["timed"] == [0, 1, 2, 3]
    assert_same(tokens_of(outcome, "greedy"), tokens_of(on_cpu, "greedy"))
    assert outcome["counters"]["vllm:spec_decode_num_accepted_tokens"] > 0
