"""What trees of drafts yield, by their number of drafts, from the lengths of accepted paths.

Each size of tree has a mean of its own, apart from the rates of chains. A tree that is not chosen
is seldom measured, while the chain of its first drafts may be. So its mean is moved by as much as
that chain yields more or less now. Of a path that was accepted the scheduler knows how long it is,
and with synchronous scheduling, where it has the drafts, also how far it followed the chain: then
the difference is exact. As in ``acceptance.py``, only counts are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_ascend_spec.config.tree_shape import parents_of
from vllm_ascend_spec.control.acceptance import PRIOR_WEIGHT, WINDOW

if TYPE_CHECKING:
    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.control.acceptance import RecentAcceptance

# Observations of first drafts of a chain: so many are made up from trees at the start, and from so
# many on what chains yield is known.
FIRST, KNOWN = 5.0, 10.0
# How often a tree has the right token where its principal chain ends, before it is observed. It is
# high enough that trees are tried.
PRIOR_GAIN = 0.45
# Paths from which a mean is more than a guess, and where it is known how far each followed the
# chain; and as how many a mean counts that has become old.
SURE, SURE_WHERE_EXACT, OLD = 100, 32, 32.0
# Tokens by which what is expected of a chain varies by chance.
CHANCE = 0.3


@dataclass(frozen=True)
class DraftShapes:
    """Which numbers of drafts are trees.

    Attributes:
        longest_chain: up to so many drafts are a chain.
        is_found: whether trees are found in the text, so that none is known to have a chain.
        passes: how often the draft runs for each tree, by its number of drafts.
    """

    longest_chain: int
    is_found: bool = False
    passes: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: SpecConfig) -> DraftShapes:
        """Return what the shapes of an engine's drafts are; a learned one begins as this."""
        chain, tree = asked.longest_chain, asked.tree or ()
        # Each node that others follow is read once, and the text's end.
        passes = {
            k: len(set(parents_of(tree[:k]))) for k in asked.lengths if chain < k <= len(tree)
        }
        return cls(chain, asked.has_trees and not tree, passes)


@dataclass
class PathMean:
    """Accepted paths of one size of tree.

    Attributes:
        seen: number of paths.
        count: the same, with older ones faded.
        total: sum of their lengths, faded likewise.
        chains: sum of the tokens of their chains, or of what was expected of a chain at the time.
        known: number of paths for which that was known.
        last: number of the last path, counted over all drafts.
    """

    seen: int = 0
    count: float = 0.0
    total: float = 0.0
    chains: float = 0.0
    known: float = 0.0
    last: int = 0

    def note(self, accepted: int, chain: float | None, number: int) -> None:
        """Add a path; ``number`` counts all drafts, ``chain`` is None if not known."""
        age = math.exp((self.last - number) / WINDOW)
        keep = max(age, min(math.exp(-1 / WINDOW), OLD / self.count)) if self.count else 0.0
        self.seen += 1
        self.count = keep * self.count + 1.0
        self.total = keep * self.total + accepted
        self.known = keep * self.known + (chain is not None)
        self.chains = keep * self.chains + (chain or 0.0)
        self.last = number

    def moved_to(self, chain: float, chance: float) -> float:
        """Return the sum of the lengths, if a chain yields ``chain`` tokens now.

        Args:
            chain: tokens of a chain.
            chance: by how much they vary by chance.
        """
        more = chain - self.chains / self.known if self.known else 0.0
        return self.total + self.count * math.copysign(max(0.0, abs(more) - chance), more)


class TreeTokens:
    """Expected tokens of chains and trees.

    Args:
        shapes: which numbers of drafts are trees.
        k_values: the numbers of drafts that are chosen from.
        acceptance: rates of chains; of trees that are found, of all drafts.
        of_chains: tokens per request and step by number of drafts, made of these rates.
    """

    def __init__(
        self,
        shapes: DraftShapes,
        k_values: Collection[int],
        acceptance: RecentAcceptance,
        of_chains: Callable[[int], float],
    ) -> None:
        self._shapes = shapes
        self._acceptance = acceptance
        self._of_chains = of_chains
        self._means = {k: PathMean() for k in sorted(k_values) if k > shapes.longest_chain}
        self._number = 0
        self._chance = CHANCE

    def note(self, drafts: int, accepted: int, on_chain: int | None) -> tuple[int, int] | None:
        """Record the accepted path of a request's tree, or nothing of a chain.

        Args:
            drafts: number of drafts.
            accepted: length of the accepted path.
            on_chain: how many of its first nodes are the first drafts; None if not known.

        Returns:
            What the request says about chains: drafts and accepted ones; None if nothing.
        """
        self._number += 1
        longest, mean = self._shapes.longest_chain, self._means.get(drafts)
        if drafts <= longest or self._shapes.is_found:
            if mean is not None:
                mean.note(accepted, None, self._number)
            return drafts, accepted
        observed = self._acceptance.num_observed
        chain = self._chain() if observed >= KNOWN else None
        if on_chain is not None:
            on_chain = min(on_chain, longest)
            self._chance, chain = 0.0, 1.0 + on_chain
        if mean is not None:
            mean.note(accepted, chain, self._number)
        if on_chain is not None:
            return longest, on_chain
        return (longest, min(accepted, longest)) if observed < FIRST else None

    @property
    def sizes(self) -> Collection[int]:
        """The numbers of drafts that are trees, ascending."""
        return self._means.keys()

    def is_uncertain(self, drafts: int) -> bool:
        """Tell whether too few paths of a tree were seen."""
        mean = self._means.get(drafts)
        return mean is not None and mean.seen < (SURE if self._chance else SURE_WHERE_EXACT)

    def tokens(self, drafts: int) -> float:
        """Return how many tokens a step is expected to yield for a request."""
        mean = self._means.get(drafts)
        if mean is None:
            return self._of_chains(drafts)
        total = mean.total
        if not self._shapes.is_found:
            total = mean.moved_to(self._chain(), self._chance)
        before = self._assumed(drafts) - 1.0
        return max(1.0, 1.0 + (total + PRIOR_WEIGHT * before) / (mean.count + PRIOR_WEIGHT))

    def _chain(self) -> float:
        """Return what the principal chain is expected to yield."""
        return self._of_chains(self._shapes.longest_chain)

    def _assumed(self, drafts: int) -> float:
        """Return what a tree is assumed to yield: as much as the next larger one."""
        if self._shapes.is_found:
            return self._of_chains(drafts)
        larger = next((k for k in self._means if k > drafts), None)
        if larger is not None:
            return self.tokens(larger)
        longest, chain = self._shapes.longest_chain, self._chain()
        ends = 1.0 - (chain - self._of_chains(longest - 1))
        return chain + PRIOR_GAIN * ends
