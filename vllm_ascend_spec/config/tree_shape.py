"""Shapes of draft trees: which continuations of a text are verified in one pass.

A node is named by its path from the text's end, as in vLLM's old ``speculative_token_tree``:
``(0,)`` is the likeliest next token, ``(1,)`` the second likeliest, ``(0, 2)`` the third likeliest
one after ``(0,)``. The nodes of a tree are in an order in which every prefix is a tree, too:
parents before children, and the principal chain ``(0,), (0, 0), …`` before all others.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import prod
from typing import Any

Path = tuple[int, ...]
Tree = tuple[Path, ...]
# Returns how often the target takes a draft of a depth (1 after the text) and a rank, given that it
# took all before it. It falls with the rank.
Rates = Callable[[int, int], float]
# At any depth, before anything was measured.
COMMON_RATES = (0.6, 0.12, 0.06, 0.03)
# Each further rank is taken so much more rarely.
FURTHER = 0.5


# A chain with siblings: drafts one after another, and beside each other.
SIZES = re.compile(r"([1-9]\d?)x([1-9]\d?)", re.ASCII)


def read_paths(value: Any) -> list[Path] | None:
    """Return the paths of a list, or of its text as in vLLM's documents; None if it has none."""
    try:
        listed = literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(listed, list | tuple) or not listed:
        return None
    paths = [tuple(path) if isinstance(path, list | tuple) else (path,) for path in listed]
    are_ranks = all(type(rank) is int and rank >= 0 for path in paths for rank in path)
    return paths if are_ranks and all(paths) else None


def size_of(tree: int | str | None, paths: Any = None) -> int | None:
    """Return the number of nodes of a tree, however it is asked for; None if that is no tree.

    Args:
        tree: a number of nodes, or sizes as in ``5x3``.
        paths: a list of paths.
    """
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        sizes = SIZES.fullmatch(tree)
        return None if sizes is None else int(sizes[1]) * int(sizes[2])
    listed = read_paths(paths)
    return None if listed is None else len(listed)


def common_rate(depth: int, rank: int) -> float:
    """Return the rate that is assumed before anything was measured."""
    last = len(COMMON_RATES) - 1
    return COMMON_RATES[min(rank, last)] * FURTHER ** max(rank - last, 0)


def value_of(path: Path, rates: Rates = common_rate) -> float:
    """Return how often a node is reached."""
    return prod(rates(depth, rank) for depth, rank in enumerate(path, 1))


def expected_tokens(tree: Iterable[Path], rates: Rates = common_rate) -> float:
    """Return how many tokens a step with a tree is expected to yield, the target's own included."""
    return 1.0 + sum(value_of(path, rates) for path in tree)


def depth_of(tree: Iterable[Path]) -> int:
    """Return how many nodes follow each other at most."""
    return max(map(len, tree))


def is_principal(path: Path) -> bool:
    """Tell whether a node is on the chain of the likeliest tokens."""
    return not any(path)


def in_order(paths: Iterable[Path], rates: Rates = common_rate) -> Tree:
    """Return the nodes of a tree in order: the principal chain, then those reached most often."""

    def place(path: Path) -> tuple[bool, float, Path]:
        return not is_principal(path), -value_of(path, rates), path

    return tuple(sorted(paths, key=place))


def comb(depth: int, width: int) -> Tree:
    """Return the principal chain of ``depth`` nodes, each with ``width - 1`` siblings."""
    chain = [(0,) * level for level in range(depth)]
    return in_order((*before, rank) for before in chain for rank in range(width))


def best_tree(
    nodes: int,
    deepest: int | None = None,
    *,
    is_comb: bool = False,
    rates: Rates = common_rate,
) -> Tree:
    """Return the tree of so many nodes that yields the most tokens.

    A child is reached more rarely than its parent and than the sibling before it. So the nodes
    that are reached most often are a tree, and no other tree of as many yields more.

    Args:
        nodes: number of nodes.
        deepest: most drafts one after another; None for no limit.
        is_comb: whether only nodes of the principal chain may have children.
        rates: how often a draft is taken.
    """
    found: list[Path] = []
    reached: list[tuple[float, Path]] = [(-rates(1, 0), (0,))]
    while len(found) < nodes:
        value, path = heappop(reached)
        found.append(path)
        sibling = (*path[:-1], path[-1] + 1)
        heappush(reached, (-value_of(sibling, rates), sibling))
        is_last = deepest is not None and len(path) == deepest
        if not is_last and (is_principal(path) or not is_comb):
            heappush(reached, (value * rates(len(path) + 1, 0), (*path, 0)))
    return in_order(found, rates)


def branched(tree: Tree) -> Tree:
    """Return a tree that is no chain: the second likeliest token takes the place of a last draft.

    What is accepted beside a chain shows only where something is beside it.
    """
    is_longer_chain = len(tree) > 1 and all(map(is_principal, tree))
    return (*tree[:-1], (1,)) if is_longer_chain else tree


def parents_of(tree: Tree) -> list[int]:
    """Return the place of each node's parent in the tree; -1 for those that follow the text."""
    places = {path: place for place, path in enumerate(tree)}
    return [places.get(path[:-1], -1) for path in tree]


def missing_parents(paths: Iterable[Path]) -> set[Path]:
    """Return the nodes that some of these follow and that are not among them."""
    known = set(paths)
    before = {path[:depth] for path in known for depth in range(1, len(path))}
    return before - known
