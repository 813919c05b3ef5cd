"""What the scheduler does with the confidences that come with drafts, over fakes for vLLM's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.control.fake_scheduler import Auto, Scheduler, decoding, observed, outcome, step
from vllm_ascend_spec.config.confidence import attach_confidences
from vllm_ascend_spec.control.adaptive_k import PAYS, PROBE
from vllm_ascend_spec.control.scheduler import StepK
from vllm_ascend_spec.control.step_timer import StepTimer, TimedStep


def hand_over(scheduler: Any, confidences: dict[str, list[float]]) -> dict[str, list[int]]:
    """Let the worker hand over three drafts of each request; return those to be verified."""
    drafts: Any = SimpleNamespace(
        req_ids=list(confidences), draft_token_ids=[[7, 8, 9] for _ in confidences]
    )
    attach_confidences(drafts, list(confidences.values()))
    scheduler.update_draft_token_ids(drafts)
    taken_up: dict[str, list[int]] = scheduler.taken_up
    return taken_up


def with_confidences(reason: str = PAYS) -> Any:
    """Return a scheduler whose rows cost half a token, and which has seen confidences pay."""
    scheduler = Scheduler()
    limits = scheduler.classes[False].confidence
    assert limits is not None
    limits.price, limits.pays = 0.5, lambda drafts: True  # type: ignore[method-assign]
    scheduler._step_k = StepK(3, reason, verified=3)
    return scheduler


SURE_OF = {"a": [0.9, 0.9, 0.9], "b": [0.9, 0.2, 0.9], "c": [0.1, 0.9, 0.9]}


def test_drafts_that_are_not_trusted_are_left_out() -> None:
    scheduler = with_confidences()
    scheduler._limits["a"] = 1
    assert hand_over(scheduler, SURE_OF) == {"a": [7], "b": [7], "c": []}
    scheduler._limits.clear()
    assert hand_over(scheduler, SURE_OF) == {"a": [7, 8, 9], "b": [7], "c": []}


def test_steps_that_try_a_k_or_are_only_timed_verify_all_drafts() -> None:
    everything = {name: [7, 8, 9] for name in SURE_OF}
    assert hand_over(with_confidences(PROBE), SURE_OF) == everything
    scheduler = with_confidences()
    scheduler.warmup_k = 3
    assert hand_over(scheduler, SURE_OF) == everything


def test_drafts_that_are_left_out_are_not_taken_for_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed: list[TimedStep] = []
    monkeypatch.setattr(StepTimer, "ended", lambda self, step, now: timed.append(step))
    scheduler = with_confidences()
    decoding(scheduler, "a", "b", "c")
    drafted = hand_over(scheduler, SURE_OF)
    results = {"a": [7, 8, 9, 1], "b": [7, 2], "c": [5]}
    scheduler.update_from_output(step(drafted, verified=3), outcome(results))
    assert observed(scheduler) == [3, 2, 1]
    # Of c nothing was verified and of b one draft: what is expected of the next ones counts.
    accepted = scheduler.chooser.acceptance._accepted
    assert accepted == pytest.approx([2.1, 1.29, 1.26], abs=0.05)
    counts = scheduler.classes[False].per_request._counts
    assert (counts["b"].verified, counts["c"].verified) == ([1, 0, 0], [0, 0, 0])
    # Two drafts of b and three of c, which the step would have taken longer with.
    assert timed[0].left_out == 5
    # Without confidences, drafts that are missing count as before.
    monkeypatch.setattr(scheduler, "_expected", {})
    scheduler.update_from_output(step(drafted, verified=3), outcome(results))
    assert observed(scheduler) == [6, 4, 2]
    assert (counts["b"].accepted[1], counts["c"].verified[0]) == (0, 1)
    assert timed[1].left_out == 0


def test_what_was_expected_is_forgotten_with_the_request_and_with_its_drafts() -> None:
    scheduler = with_confidences()
    hand_over(scheduler, SURE_OF)
    scheduler._forget("a")
    assert sorted(scheduler._expected) == ["b", "c"]
    plain: Any = SimpleNamespace(req_ids=["b", "c"], draft_token_ids=[[7, 8, 9], [7, 8, 9]])
    scheduler.update_draft_token_ids(plain)
    assert scheduler.taken_up == {"b": [7, 8, 9], "c": [7, 8, 9]}
    assert scheduler._expected == {}


def test_auto_takes_no_notice_of_confidences() -> None:
    assert hand_over(Auto(), SURE_OF) == {name: [7, 8, 9] for name in SURE_OF}
