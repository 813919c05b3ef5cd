"""How many of some drafts will be accepted, by what became of earlier ones.

A drafter says how likely each draft is, given that those before it were accepted. How much that is
worth is learnt: for drafts of one *kind* (of a model: one position; of a suffix tree: a match of
about one length) over all requests, and over all kinds for one request. Both forget slowly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# A kind is believed from some eight drafts on and forgets after some 500, a request after some 30.
KIND_WEIGHT, KIND_KEEP = 8.0, 0.998
REQUEST_WEIGHT, REQUEST_KEEP = 6.0, 0.97


@dataclass(frozen=True)
class Drafts:
    """Drafts of one request, with what is known about them beforehand.

    Attributes:
        tokens: the draft token ids.
        kinds: what each is counted with.
        chances: how likely each is to be accepted if those before it are, in (0, 1].
    """

    tokens: Sequence[int]
    kinds: Sequence[Hashable]
    chances: Sequence[float]

    def outcomes(self, written: Sequence[int]) -> list[bool]:
        """Return which drafts were right, up to the first that was not, or that nothing tells of.

        Args:
            written: what stands in their place now.
        """
        told = [draft == token for draft, token in zip(self.tokens, written, strict=False)]
        return told[: told.index(False) + 1] if False in told else told


@dataclass
class Tally:
    """Drafts that were accepted, and how many had been expected to be."""

    accepted: float = 0.0
    expected: float = 0.0

    def add(self, was_accepted: bool, chance: float, keep: float) -> None:
        """Count one draft, and let the earlier ones count a little less."""
        self.accepted = self.accepted * keep + was_accepted
        self.expected = self.expected * keep + chance

    def ratio(self, weight: float) -> float:
        """Return how many are accepted of those expected; 1 where nothing was counted."""
        return (self.accepted + weight) / (self.expected + weight)


class Forecast:
    """What the drafts of one drafter are worth."""

    def __init__(self) -> None:
        self._kinds: defaultdict[Hashable, Tally] = defaultdict(Tally)

    def expect(self, drafts: Drafts, own: Tally) -> float:
        """Return how many of ``drafts`` will be accepted, given the tally of their request."""
        total, so_far, of_request = 0.0, 1.0, own.ratio(REQUEST_WEIGHT)
        for kind, chance in zip(drafts.kinds, drafts.chances, strict=True):
            so_far *= min(1.0, chance * self._kinds[kind].ratio(KIND_WEIGHT) * of_request)
            total += so_far
        return total

    def learn(self, drafts: Drafts, outcomes: Sequence[bool], own: Tally) -> None:
        """Count what became of ``drafts``."""
        for kind, chance, outcome in zip(drafts.kinds, drafts.chances, outcomes, strict=False):
            tally = self._kinds[kind]
            # A request is compared with what others of this kind are worth.
            own.add(outcome, min(1.0, chance * tally.ratio(KIND_WEIGHT)), REQUEST_KEEP)
            tally.add(outcome, chance, KIND_KEEP)
