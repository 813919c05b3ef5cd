"""The shape of a tree of so many drafts, from how often drafts of each depth and rank are accepted.

Only what was accepted before is used, so the choice is lossless (``control/acceptance.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_ascend_spec.config.tree_shape import (
    Rates,
    Tree,
    best_tree,
    branched,
    common_rate,
    parents_of,
)

# Steps of a request between two looks at the shape.
EVERY = 64
# Observations of a place that count; older ones fade.
WINDOW = 512
# What is left of a count at each look, so that a place without observations may be tried again.
KEPT = 0.95
# A place's rate before it is observed, the rate of its rank at all depths, counts so much.
PRIOR_WEIGHT = 8.0


class Count:
    """How often drafts of one kind were looked at and taken, with older observations faded."""

    __slots__ = ("seen", "taken")

    def __init__(self) -> None:
        self.seen = self.taken = 0.0

    def note(self, *, is_taken: bool) -> None:
        """Count one more."""
        self.seen = self.seen * (1 - 1 / WINDOW) + 1
        self.taken = self.taken * (1 - 1 / WINDOW) + is_taken

    def fade(self) -> None:
        """Let what was observed count less."""
        self.seen, self.taken = KEPT * self.seen, KEPT * self.taken

    def rate(self, before: float) -> float:
        """Return the rate, given what is assumed without observations."""
        return (self.taken + PRIOR_WEIGHT * before) / (self.seen + PRIOR_WEIGHT)


class Shape(NamedTuple):
    """A tree, and what is looked up in it often.

    Attributes:
        tree: the paths of its nodes.
        children: nodes that follow the text, then those that follow each node.
    """

    tree: Tree
    children: list[list[int]]

    @classmethod
    def of(cls, tree: Tree) -> Shape:
        """Return a tree with its children."""
        children: list[list[int]] = [[] for _ in range(len(tree) + 1)]
        for node, parent in enumerate(parents_of(tree)):
            children[parent + 1].append(node)
        return cls(tree, children)


class TreeChoice:
    """Keeps the best shape for what is accepted.

    Args:
        tree: the first shape; its number of nodes is kept.
        shape: returns the best tree for some rates.

    Attributes:
        tree: the shape that is drafted now.
    """

    def __init__(self, tree: Tree, shape: Callable[..., Tree]) -> None:
        self.tree = tree
        self._shape = shape
        self._known = Shape.of(tree)
        self._steps = 0
        self._places: dict[tuple[int, int], Count] = defaultdict(Count)
        self._ranks: dict[int, Count] = defaultdict(Count)

    def note(self, rows: Sequence[int], num_drafts: int) -> None:
        """Record what was accepted of one request's drafts.

        Args:
            rows: rows of its path: 0, then node + 1 for each accepted node.
            num_drafts: how many nodes were verified, the first ones of the tree.
        """
        tree, children = self._known
        accepted = set(rows)
        for row in rows:
            for node in children[row]:
                if node >= num_drafts:
                    continue
                path, is_taken = tree[node], node + 1 in accepted
                self._places[len(path), path[-1]].note(is_taken=is_taken)
                self._ranks[path[-1]].note(is_taken=is_taken)
        self._steps += 1

    def rate(self, depth: int, rank: int) -> float:
        """Return how often a draft of a depth and a rank is taken; it falls with the rank."""
        return min(self._rate(depth, lower) for lower in range(rank + 1))

    def _rate(self, depth: int, rank: int) -> float:
        of_rank = self._ranks[rank].rate(common_rate(depth, rank))
        return self._places[depth, rank].rate(of_rank)

    def look(self) -> bool:
        """Choose the shape anew if enough was seen; tell whether it is another one."""
        if self._steps < EVERY:
            return False
        self._steps = 0
        for count in (*self._places.values(), *self._ranks.values()):
            count.fade()
        tree = self._shape(rates=self.rate)
        if tree == self.tree:
            return False
        self.tree, self._known = tree, Shape.of(tree)
        return True


def choice_of(nodes: int, deepest: int | None) -> TreeChoice:
    """Return the choice among trees of so many nodes."""

    def shape(rates: Rates = common_rate) -> Tree:
        return branched(best_tree(nodes, deepest, rates=rates))

    return TreeChoice(shape(), shape)
