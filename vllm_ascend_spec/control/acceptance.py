"""Acceptance rates of drafts by position, in which the newest drafts count most.

Only counts are used: which drafts were accepted, never which tokens they were. For drafts that were
left out it counts what was expected. All of it is known before the drafts that are chosen with it
are made, so any choice based on it is lossless.
"""

from __future__ import annotations

from collections.abc import Sequence

# Observations of a position that count; older ones have faded.
WINDOW = 256
# Rate assumed for a position before any observation, and its weight in observations. It is high
# enough that drafts are tried.
PRIOR_RATE, PRIOR_WEIGHT = 0.7, 4.0


class RecentAcceptance:
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
        """Record how many of one request's drafts were accepted.

        Drafts after the first rejected one were not examined.

        Args:
            drafts: number of drafts.
            accepted: number of accepted drafts, counted from the first one.
        """
        for place in range(min(accepted + 1, drafts, self.longest)):
            self._verified[place] = self._verified[place] * self._keep + 1.0
            self._accepted[place] = self._accepted[place] * self._keep + float(place < accepted)

    def assume(self, verified: int, rates: Sequence[float]) -> None:
        """Count drafts that were not verified as what is expected of them.

        They were left out because little was expected of them. Without them, the rates would be
        those of promising drafts only.

        Args:
            verified: number of verified drafts, all of them accepted.
            rates: by place, the expected acceptance rates of all drafts of the request.
        """
        reach = 1.0
        for place in range(verified, min(len(rates), self.longest)):
            keep = self._keep**reach
            self._verified[place] = self._verified[place] * keep + reach
            reach *= rates[place]
            self._accepted[place] = self._accepted[place] * keep + reach

    def rates(self) -> list[float]:
        """Return the acceptance rate of each position, given that all before it were accepted.

        A position that was seldom reached is assumed to be like the one before it.
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
        """Number of observed first drafts, with older ones faded."""
        return self._verified[0] if self._verified else 0.0
