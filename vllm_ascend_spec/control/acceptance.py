"""How often drafts were accepted, by position, the newest counting most.

Only counts go in: which drafts were accepted, never which tokens they were. What is chosen by them
is therefore lossless, whatever it is.
"""

from __future__ import annotations

# Of observations of a position; older ones have faded.
WINDOW = 256
# What a position is taken for before anything is known, as so many observations: worth a try.
PRIOR_RATE, PRIOR_WEIGHT = 0.7, 4.0


class Acceptance:
    """Rates of acceptance by position.

    Args:
        longest: K, the most drafts of a request; kept as an attribute.
        window: how many observations count; older ones fade by 1/e over it.
    """

    def __init__(self, longest: int, window: int = WINDOW) -> None:
        self.longest = longest
        self._keep = 1.0 - 1.0 / window
        self._verified = [0.0] * longest
        self._accepted = [0.0] * longest

    def note(self, drafts: int, accepted: int) -> None:
        """Take up what became of one request's drafts.

        A draft behind the first one that was rejected was not looked at.

        Args:
            drafts: how many there were.
            accepted: how many of them, from the first one on.
        """
        for place in range(min(accepted + 1, drafts, self.longest)):
            self._verified[place] = self._verified[place] * self._keep + 1.0
            self._accepted[place] = self._accepted[place] * self._keep + float(place < accepted)

    def rates(self) -> list[float]:
        """Return how often each draft is accepted where all before it were, by position.

        A position that was seldom reached is taken to be like the one before it.
        """
        found: list[float] = []
        before = PRIOR_RATE
        for verified, accepted in zip(self._verified, self._accepted, strict=True):
            before = (accepted + PRIOR_WEIGHT * before) / (verified + PRIOR_WEIGHT)
            found.append(before)
        return found

    def tokens(self, drafts: int) -> float:
        """Return how many tokens a step is expected to yield for a request with ``drafts`` drafts.

        The bonus token is one of them, so it is 1 without drafts (2211.17192, equation 1).
        """
        total, all_accepted = 1.0, 1.0
        for rate in self.rates()[:drafts]:
            all_accepted *= rate
            total += all_accepted
        return total

    @property
    def num_observed(self) -> float:
        """How many first drafts count, faded."""
        return self._verified[0] if self._verified else 0.0
