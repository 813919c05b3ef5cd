"""Acceptance of each request, and how many of its drafts are worth a row of the target.

A step makes equally many drafts for all requests, but fewer may be verified: a row of the target
costs time in which the batch could produce other tokens. As in ``acceptance.py``, only counts are
used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from vllm_ascend_spec.control.acceptance import RecentAcceptance

# Observations of a position after which a request's own rate weighs as much as the overall one.
WEIGHT = 8.0
# Share of the batch's tokens that leaving drafts out has to save.
GAIN = 0.05
# Steps over which the counts of a request fade, so that its drafts are tried again.
FADE = 64


@dataclass
class Counts:
    """Counts of a request's drafts.

    Attributes:
        verified, accepted: number of drafts by position; older ones count less.
        step: the step that the counts were last aged to.
    """

    verified: list[float]
    accepted: list[float]
    step: int = 0

    def fade(self, step: int) -> None:
        """Let the counts fade up to ``step``."""
        if step > self.step:
            keep = (1.0 - 1.0 / FADE) ** (step - self.step)
            self.verified = [keep * count for count in self.verified]
            self.accepted = [keep * count for count in self.accepted]
            self.step = step


@dataclass
class PerRequestAcceptance:
    """Acceptance of each request, shrunk towards the overall rate where little is known.

    Attributes:
        overall: acceptance over all requests.
    """

    overall: RecentAcceptance
    _counts: dict[str, Counts] = field(default_factory=dict)
    _running: tuple[str, ...] = ()
    _step: int = 0
    _mean: list[float] = field(default_factory=list)
    _mean_of: int = -1

    def note(self, req_id: str, drafts: int, accepted: int) -> None:
        """Record a request's verified and accepted drafts, see :meth:`RecentAcceptance.note`."""
        longest = self.overall.longest
        counts = self._counts.get(req_id)
        if counts is None:
            counts = self._counts[req_id] = Counts([0.0] * longest, [0.0] * longest)
        counts.fade(self._step)
        for place in range(min(accepted + 1, drafts, longest)):
            counts.verified[place] += 1.0
            counts.accepted[place] += float(place < accepted)

    def end_step(self, running: Collection[str]) -> None:
        """Go on to the next step.

        Args:
            running: ids of the step's requests.
        """
        self._step += 1
        self._running = tuple(running)
        if self._step % FADE == 0:
            # Counts that were not used since have faded to almost nothing.
            old = self._step - 8 * FADE
            self._counts = {name: kept for name, kept in self._counts.items() if kept.step > old}

    @property
    def num_running(self) -> int:
        """Number of requests in the last step."""
        return len(self._running)

    def forget(self, req_id: str) -> None:
        """Drop what is known of a request that has ended."""
        self._counts.pop(req_id, None)

    def rates(self, req_id: str, overall: list[float]) -> list[float]:
        """Return the acceptance rate of each position of a request, given that it is reached.

        Args:
            req_id: id of the request.
            overall: overall acceptance rates by position.
        """
        counts = self._counts.get(req_id)
        if counts is None:
            return overall
        counts.fade(self._step)
        return [
            (accepted + WEIGHT * rate) / (verified + WEIGHT)
            for rate, verified, accepted in zip(
                overall, counts.verified, counts.accepted, strict=True
            )
        ]

    def chances(self, req_id: str, rates: list[float]) -> list[float]:
        """Return the probability that each draft of a request is accepted with all before it.

        Args:
            req_id: id of the request.
            rates: overall acceptance rates by position.
        """
        return [*accumulate(self.rates(req_id, rates), mul)]

    def tokens(self, drafts: int) -> float:
        """Return how many tokens a step is expected to yield for a request of the batch.

        It is the mean over running requests: the overall counts contain less of those with fewer
        verified drafts.
        """
        if not self._running:
            return self.overall.tokens(drafts)
        if self._mean_of != self._step:
            rates, self._mean_of = self.overall.rates(), self._step
            each = [self.chances(req_id, rates) for req_id in self._running]
            self._mean = [sum(place) / len(each) for place in zip(*each, strict=True)]
        return 1.0 + sum(self._mean[:drafts])

    def limits(self, price: float, drafts: int | None = None) -> Mapping[str, int]:
        """Return how many drafts pay for their rows, for each request that has more than that.

        Args:
            price: tokens that the batch produces in the time of a row.
            drafts: number of drafts per request; None for the largest possible.

        Returns:
            Limits by request id; none if they save too little together, as a batch of requests with
            different numbers of rows takes longer by itself.
        """
        rates = self.overall.rates()
        found: dict[str, int] = {}
        saved, tokens = 0.0, float(len(self._running))
        for req_id in self._running:
            chances = self.chances(req_id, rates)[:drafts]
            # Chances fall from draft to draft.
            worth = sum(chance >= price for chance in chances)
            tokens += sum(chances)
            if worth < len(chances):
                found[req_id] = worth
                saved += sum(price - chance for chance in chances[worth:])
        return found if saved > GAIN * tokens else {}
