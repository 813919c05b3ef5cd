"""Drafts of trees that were found in a text, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class FoundTree(NamedTuple):
    """The drafts of one request.

    Attributes:
        tokens: one for each node.
        parents: place of each node's parent; -1 for those that follow the text.
    """

    tokens: list[int]
    parents: list[int]


NOTHING = FoundTree([], [])


class FindsTreesMixin:
    """Mixin for drafters that look texts up.

    Attributes:
        finds_trees: whether drafts are trees.
    """

    finds_trees: bool = False
    _parents: list[list[int]] | None = None

    def hand_over(self, trees: Sequence[FoundTree]) -> list[list[int]]:
        """Return the drafts of each request; keep how they hang together."""
        self._parents = [tree.parents for tree in trees]
        return [tree.tokens for tree in trees]

    def take_parents(self) -> list[list[int]] | None:
        """Return how the last drafts of each request hang together; None for chains."""
        return self._parents


def principal_chain(parents: Sequence[int]) -> list[int]:
    """Return the first node that follows the text, its first child, and so on."""
    first_child: dict[int, int] = {}
    for node, parent in enumerate(parents):
        first_child.setdefault(parent, node)
    chain, node = [], -1
    while (node := first_child.get(node, -1)) >= 0:
        chain.append(node)
    return chain


def principal_first(tokens: Sequence[int], parents: Sequence[int]) -> FoundTree:
    """Return the same tree with its principal chain first, the others in their order.

    Args:
        tokens: one for each node, parents before children, and of siblings the likeliest first.
        parents: place of each node's parent; -1 for those that follow the text.
    """
    chain = principal_chain(parents)
    known = set(chain)
    order = chain + [node for node in range(len(tokens)) if node not in known]
    place = {-1: -1} | {node: index for index, node in enumerate(order)}
    return FoundTree([tokens[node] for node in order], [place[parents[node]] for node in order])
