"""Requests with fewer drafts than others on the simulated NPU, with steps scheduled ahead, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import Case
from tests.ascend.processes import tokens_of
from tests.engines import assert_same


@pytest.mark.parametrize(
    ("mode", "is_ahead", "scheduler"),
    [
        ("eager", True, "SpecAsyncScheduler"),
        ("full_decode_only", False, "SpecScheduler"),
        pytest.param("default", True, "SpecAsyncScheduler", marks=pytest.mark.nightly),
    ],
)
def test_answers_are_those_of_no_speculation(
    mode: str, is_ahead: bool, scheduler: str, run_engine: Any, on_cpu: Any
) -> None:
    ours = {"async_scheduling": is_ahead}
    case = Case(method="eagle", mode=mode, engine=ours, requests=("greedy", "switched"))
    outcome = run_engine(case)
    assert outcome["scheduler"] == scheduler
    expected = tokens_of(on_cpu, "greedy")
    assert_same(tokens_of(outcome, "switched"), expected)
    drafts = "vllm:spec_decode_num_draft_tokens"
    counted = outcome["counters_of"]
    # A third of the requests has none, and a third has one for three.
    assert 0 < counted["switched"][drafts] < 0.75 * counted["greedy"][drafts]
    assert counted["switched"]["vllm:spec_decode_num_accepted_tokens"] > 0
