"""A tree of what followed the last n-gram of a text, wherever it occurred before."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from vllm_ascend_spec.methods.found_trees import FoundTree, principal_first

if TYPE_CHECKING:
    from collections.abc import Iterable

# The latest occurrences that are looked at.
MOST_MATCHES = 64


def continuations(
    tokens: np.ndarray,  # [num_tokens]
    min_n: int,
    max_n: int,
    longest: int,
) -> list[list[int]]:
    """Return what followed the longest n-gram that ends a text, the latest occurrence first.

    Args:
        tokens: the text.
        min_n: length of the shortest n-gram.
        max_n: length of the longest n-gram.
        longest: most tokens of a continuation.
    """
    before = tokens[:-1]
    matches = np.flatnonzero(before == tokens[-1])  # ends of the n-grams that agree so far
    found = matches[:0]
    for n in range(1, min(max_n, len(before)) + 1):
        if n > 1:
            matches = matches[matches >= n - 1]
            matches = matches[before[matches - (n - 1)] == tokens[-n]]
        if not len(matches):
            break
        if n >= min_n:
            found = matches
    return [tokens[end + 1 : end + 1 + longest].tolist() for end in found[-MOST_MATCHES:][::-1]]


class Node:
    """A token of the trie, how many continuations have it, and what follows it."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, Node] = {}


def tree_of(texts: Iterable[list[int]], most: int) -> FoundTree:
    """Return the likeliest nodes of the trie of some continuations.

    A node is as likely as the share of the continuations that have it; of equally likely ones those
    nearer to the text come first, then those of earlier continuations.

    Args:
        texts: the continuations.
        most: maximum number of nodes.
    """
    root = Node()
    for text in texts:
        node = root
        for token in text:
            node = node.children.setdefault(token, Node())
            node.count += 1
    tokens: list[int] = []
    parents: list[int] = []
    waiting: list[tuple[int, int, int, int, int, Node]] = []

    def open_children(node: Node, place: int, depth: int) -> None:
        for token, child in node.children.items():
            order = len(tokens) + len(waiting)
            heappush(waiting, (-child.count, depth, order, token, place, child))

    open_children(root, -1, 1)
    while waiting and len(tokens) < most:
        _, depth, _, token, parent, node = heappop(waiting)
        tokens.append(token)
        parents.append(parent)
        open_children(node, len(tokens) - 1, depth + 1)
    return principal_first(tokens, parents)
