"""Estimate how many drafts will be accepted, from the outcomes of earlier drafts.

A drafter states how likely each draft is, given that all drafts before it were accepted. Measured
acceptance corrects this twice: per *kind* of draft over all requests (for a model, one position;
for a suffix tree, matches of similar length), and per request over all kinds. Both forget slowly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# A kind counts from about eight drafts on and forgets after about 500, a request after about 30.
KIND_WEIGHT, KIND_KEEP = 8.0, 0.998
REQUEST_WEIGHT, REQUEST_KEEP = 6.0, 0.97


@dataclass(frozen=True)
class Drafts:
    """Drafts of one request, with what is known about them beforehand.

    Attributes:
        tokens: the draft token ids.
        kinds: the kind that each draft is counted with.
        chances: probability of each draft to be accepted if those before it are, in (0, 1].
    """

    tokens: Sequence[int]
    kinds: Sequence[Hashable]
    chances: Sequence[float]

    def outcomes(self, written: Sequence[int]) -> list[bool]:
        """Return whether each draft was right, up to the first wrong one or the end of ``written``.

        Args:
            written: the tokens that are now in their place.
        """
        told = [draft == token for draft, token in zip(self.tokens, written, strict=False)]
        return told[: told.index(False) + 1] if False in told else told


@dataclass
class Outcomes:
    """Counts of drafts that were accepted and that had been expected to be."""

    accepted: float = 0.0
    expected: float = 0.0

    def add(self, was_accepted: bool, chance: float, keep: float) -> None:
        """Count one draft, and reduce the weight of earlier ones by the factor ``keep``."""
        self.accepted = self.accepted * keep + was_accepted
        self.expected = self.expected * keep + chance

    def ratio(self, weight: float) -> float:
        """Return accepted over expected drafts, shrunk towards 1 by ``weight``."""
        return (self.accepted + weight) / (self.expected + weight)


class Forecast:
    """Acceptance forecast for the drafts of one drafter."""

    def __init__(self) -> None:
        self._kinds: defaultdict[Hashable, Outcomes] = defaultdict(Outcomes)

    def expect(self, drafts: Drafts, own: Outcomes) -> float:
        """Return the expected number of accepted ``drafts``, given the tally of their request."""
        total, so_far, of_request = 0.0, 1.0, own.ratio(REQUEST_WEIGHT)
        for kind, chance in zip(drafts.kinds, drafts.chances, strict=True):
            so_far *= min(1.0, chance * self._kinds[kind].ratio(KIND_WEIGHT) * of_request)
            total += so_far
        return total

    def learn(self, drafts: Drafts, outcomes: Sequence[bool], own: Outcomes) -> None:
        """Count the outcomes of ``drafts``."""
        for kind, chance, outcome in zip(drafts.kinds, drafts.chances, outcomes, strict=False):
            tally = self._kinds[kind]
            # A request is compared with the average acceptance of this kind.
            own.add(outcome, min(1.0, chance * tally.ratio(KIND_WEIGHT)), REQUEST_KEEP)
            tally.add(outcome, chance, KIND_KEEP)
