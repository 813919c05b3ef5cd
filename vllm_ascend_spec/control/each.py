"""How often the drafts of each request are accepted, and how many of them are worth a row.

Drafts of one step are as many for all requests, but fewer may be verified: a row of the target
costs time that the batch could write other tokens in. As in ``acceptance.py`` only counts go in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from vllm_ascend_spec.control.acceptance import Acceptance

# A request counts as much as all others together after so many observations of a position.
WEIGHT = 8.0
# What leaving drafts out has to save, as a share of what the batch writes.
GAIN = 0.05
# Steps over which what is known of a request fades, so that its drafts are tried again.
FADE = 64


@dataclass
class Counts:
    """What is known of a request.

    Attributes:
        verified, accepted: drafts by position, faded.
        step: when they were true.
    """

    verified: list[float]
    accepted: list[float]
    step: int = 0

    def fade(self, step: int) -> None:
        """Let time pass."""
        if step > self.step:
            keep = (1.0 - 1.0 / FADE) ** (step - self.step)
            self.verified = [keep * count for count in self.verified]
            self.accepted = [keep * count for count in self.accepted]
            self.step = step


@dataclass
class RequestAcceptance:
    """Acceptance of each request, taken to be that of all where little is known.

    Attributes:
        overall: of all requests.
    """

    overall: Acceptance
    _counts: dict[str, Counts] = field(default_factory=dict)
    _running: tuple[str, ...] = ()
    _step: int = 0
    _mean: list[float] = field(default_factory=list)
    _mean_of: int = -1

    def note(self, req_id: str, drafts: int, accepted: int) -> None:
        """Take up what became of a request's drafts, as :meth:`Acceptance.note` does."""
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
            running: requests of the step.
        """
        self._step += 1
        self._running = tuple(running)
        if self._step % FADE == 0:
            # Hardly anything is left of what was not looked at since.
            old = self._step - 8 * FADE
            self._counts = {name: kept for name, kept in self._counts.items() if kept.step > old}

    def forget(self, req_id: str) -> None:
        """Drop what is known of a request that has ended."""
        self._counts.pop(req_id, None)

    def chances(self, req_id: str, rates: list[float]) -> list[float]:
        """Return how likely each draft of a request is to be accepted, with all before it.

        Args:
            req_id: whose.
            rates: of all requests, by position.
        """
        counts = self._counts.get(req_id)
        if counts is not None:
            counts.fade(self._step)
            rates = [
                (accepted + WEIGHT * rate) / (verified + WEIGHT)
                for rate, verified, accepted in zip(
                    rates, counts.verified, counts.accepted, strict=True
                )
            ]
        found, chance = [], 1.0
        for rate in rates:
            chance *= rate
            found.append(chance)
        return found

    def tokens(self, drafts: int) -> float:
        """Return how many tokens a step is expected to yield for a request of the batch.

        The mean of the requests that run: those that are verified less are seen less often, too.
        """
        if not self._running:
            return self.overall.tokens(drafts)
        if self._mean_of != self._step:
            rates, self._mean_of = self.overall.rates(), self._step
            each = [self.chances(req_id, rates) for req_id in self._running]
            self._mean = [sum(place) / len(each) for place in zip(*each, strict=True)]
        return 1.0 + sum(self._mean[:drafts])

    def limits(self, price: float, drafts: int | None = None) -> Mapping[str, int]:
        """Return the most drafts of each request that has some which are not worth it.

        Args:
            price: tokens that the batch writes in the time of a row.
            drafts: of each request; None for as many as there can be.

        Returns:
            Nothing where all of them together save too little: requests that differ in their rows
            take longer by themselves.
        """
        rates = self.overall.rates()
        found: dict[str, int] = {}
        saved, tokens = 0.0, float(len(self._running))
        for req_id in self._running:
            chances = self.chances(req_id, rates)[:drafts]
            # They fall from draft to draft.
            worth = sum(chance >= price for chance in chances)
            tokens += sum(chances)
            if worth < len(chances):
                found[req_id] = worth
                saved += sum(price - chance for chance in chances[worth:])
        return found if saved > GAIN * tokens else {}
