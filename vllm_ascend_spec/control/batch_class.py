"""Keep separate statistics for the two kinds of batches: sampling and greedy.

Where requests sample, drafts are accepted less often and verification takes longer. So what was
learned from one kind does not hold for the other, and neither is learned again when the load
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vllm_ascend_spec.control.adaptive_k import HOLD_STEPS, PAYS, AdaptiveK, KChoice
from vllm_ascend_spec.control.confidence import ConfidenceLimits, Estimate
from vllm_ascend_spec.control.cost_model import CostModel
from vllm_ascend_spec.control.pause_log import PauseLog
from vllm_ascend_spec.control.per_request import PerRequestAcceptance
from vllm_ascend_spec.control.step_timer import StepTimer, TimedStep
from vllm_ascend_spec.control.tree_tokens import DraftShapes, TreeTokens


class BatchClass:
    """Choice of K, step times and acceptance for one kind of batches.

    Args:
        k_values: values of K to choose from.
        may_be_ragged: whether requests of a batch may verify different numbers of drafts.
        shapes: which numbers of drafts are trees; None for none.
    """

    def __init__(
        self, k_values: Sequence[int], *, may_be_ragged: bool, shapes: DraftShapes | None = None
    ) -> None:
        self._shapes = shapes or DraftShapes(max(k_values))
        self.chooser = AdaptiveK(k_values, CostModel(self._shapes.passes))
        self.timer = StepTimer(self.chooser.costs)
        self.pause_log = PauseLog(self.chooser)
        self.per_request: PerRequestAcceptance | None = None
        self.confidence: ConfidenceLimits | None = None
        # Most drafts by request id, for requests whose further drafts are not worth their rows.
        self.limits: dict[str, int] = {}
        self._until_limits = 0
        if may_be_ragged and not self._shapes.is_found:
            self.per_request = PerRequestAcceptance(self.chooser.acceptance)
            self.confidence = ConfidenceLimits(self.per_request)
            self.chooser.expected_tokens = self.confidence.tokens
            self.chooser.rows_left_out = self.confidence.rows_left_out
        of_chains = self.chooser.expected_tokens
        self.trees = TreeTokens(self._shapes, k_values, self.chooser.acceptance, of_chains)
        self.chooser.expected_tokens = self.trees.tokens
        self.chooser.is_uncertain = self.trees.is_uncertain
        self.chooser.trees = self.trees.sizes

    def choose(self, requests: int) -> KChoice:
        """Return the choice of K for a step with this number of requests."""
        choice = self.chooser.choose(requests)
        self.pause_log.note(choice, requests)
        return choice

    def note(
        self,
        req_id: str,
        drafts: int,
        accepted: int,
        expected: Estimate | None = None,
        on_chain: int | None = None,
    ) -> None:
        """Record how many of a request's drafts were accepted, and what was expected of them.

        Args:
            req_id: id of the request.
            drafts: number of drafts.
            accepted: number of accepted drafts.
            expected: what was expected of drafts with confidences.
            on_chain: how many of the accepted ones are the first drafts; None if not known.
        """
        of_chain = self.trees.note(drafts, accepted, on_chain)
        if of_chain is None:
            return
        drafts, accepted = of_chain
        self.chooser.acceptance.note(drafts, accepted)
        if self.confidence is not None and expected is not None:
            self.confidence.note(expected, drafts, accepted)
            if accepted == drafts == expected.limit:
                self.chooser.acceptance.assume(drafts, expected.rates)
        if self.per_request is not None:
            self.per_request.note(req_id, drafts, accepted)

    def forget(self, req_id: str) -> None:
        """Drop what is known of a request that has ended."""
        self.limits.pop(req_id, None)
        if self.per_request is not None:
            self.per_request.forget(req_id)

    def ended(self, step: TimedStep, now: float, running: Collection[str]) -> None:
        """Record the end of a step.

        Args:
            step: the step that ended.
            now: seconds of a monotonic clock.
            running: ids of its requests.
        """
        self.timer.ended(step, now)
        if self.per_request is None:
            return
        self.per_request.end_step(running)
        self._until_limits -= 1
        if self._until_limits <= 0:
            self._until_limits = HOLD_STEPS
            self.limits = self._worth(self.per_request, step.requests)

    def _worth(self, per_request: PerRequestAcceptance, requests: int) -> dict[str, int]:
        choice, row = self.chooser.choice, self.chooser.costs.row_seconds(requests)
        # While a K is being tried, its steps have to be timed with all drafts. How many drafts of a
        # tree are worth their rows is chosen for all requests.
        is_chain = 0 < choice.k <= self._shapes.longest_chain
        if row is None or choice.reason != PAYS or not is_chain:
            return {}
        price = row * self.chooser.goodput(requests, choice.k)
        if self.confidence is not None:
            self.confidence.price = price
            if self.confidence.pays(choice.k):
                # Each step has limits of its own, which include the counts.
                return {}
        return dict(per_request.limits(price, choice.k))
