"""Keep separate statistics for the two kinds of batches: sampling and greedy.

Where requests sample, drafts are accepted less often and verification takes longer. So what was
learned from one kind does not hold for the other, and neither is learned again when the load
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vllm_ascend_spec.control.adaptive_k import HOLD_STEPS, PAYS, AdaptiveK
from vllm_ascend_spec.control.pause_log import PauseLog
from vllm_ascend_spec.control.per_request import PerRequestAcceptance
from vllm_ascend_spec.control.step_timer import StepTimer, TimedStep


class BatchClass:
    """Choice of K, step times and acceptance for one kind of batches.

    Args:
        lengths: values of K to choose from.
        may_be_ragged: whether requests of a batch may verify different numbers of drafts.
    """

    def __init__(self, lengths: Sequence[int], *, may_be_ragged: bool) -> None:
        self.chooser = AdaptiveK(lengths)
        self.clock = StepTimer(self.chooser.costs)
        self.reporter = PauseLog(self.chooser)
        self.each: PerRequestAcceptance | None = None
        # Most drafts by request id, for requests whose further drafts are not worth their rows.
        self.limits: dict[str, int] = {}
        self._until_limits = 0
        if may_be_ragged:
            self.each = PerRequestAcceptance(self.chooser.acceptance)
            self.chooser.expected_tokens = self.each.tokens

    def length(self, requests: int) -> int:
        """Return K for a step with this number of requests."""
        choice = self.chooser.choose(requests)
        self.reporter.note(choice, requests)
        return choice.drafts

    def note(self, req_id: str, drafts: int, accepted: int) -> None:
        """Record how many of a request's drafts were accepted."""
        self.chooser.acceptance.note(drafts, accepted)
        if self.each is not None:
            self.each.note(req_id, drafts, accepted)

    def forget(self, req_id: str) -> None:
        """Drop what is known of a request that has ended."""
        self.limits.pop(req_id, None)
        if self.each is not None:
            self.each.forget(req_id)

    def ended(self, step: TimedStep, now: float, running: Collection[str]) -> None:
        """Record the end of a step.

        Args:
            step: the step that ended.
            now: seconds of a monotonic clock.
            running: ids of its requests.
        """
        self.clock.ended(step, now)
        if self.each is None:
            return
        self.each.end_step(running)
        self._until_limits -= 1
        if self._until_limits <= 0:
            self._until_limits = HOLD_STEPS
            self.limits = self._worth(self.each, step.requests)

    def _worth(self, each: PerRequestAcceptance, requests: int) -> dict[str, int]:
        choice, row = self.chooser.choice, self.chooser.costs.row_seconds(requests)
        # While a K is being tried, its steps have to be timed with all drafts.
        if row is None or choice.reason != PAYS or choice.drafts == 0:
            return {}
        price = row * self.chooser.goodput(requests, choice.drafts)
        return dict(each.limits(price, choice.drafts))
