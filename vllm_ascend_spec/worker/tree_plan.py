"""Plan how attention over paged keys handles trees: path by path.

An attention kernel reads a request's keys by their place in the text, and lets each row attend to
all before it. So the keys of one path at a time are put at the places that follow the text, and its
rows attend to them as those of a chain. All rows of a tree have been written at first, each at the
place of its row. Paths that begin alike share what is there already. The principal chain, which is
accepted most often, comes last: its keys stay where the next step expects them.

Attention that takes a mask needs one call, see :func:`mask_of` and :func:`bits_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

Parents = tuple[int, ...]


class Walk(NamedTuple):
    """One path of a tree; row 0 is the text's last token, row i + 1 is node i.

    Attributes:
        rows: rows that attend in this walk, the last ones of the path.
        depth: depth of the last of them.
        moved: rows whose keys are written first, each to the place of its depth.
        depths: these depths.
    """

    rows: tuple[int, ...]
    depth: int
    moved: tuple[int, ...]
    depths: tuple[int, ...]


class Round(NamedTuple):
    """One call of an attention kernel, with at most one path of each request.

    Attributes:
        requests: which requests of the batch take part.
        rows: rows of the batch that attend, request by request.
        counts: number of these rows, by request.
        unseen: rows at the end of each request that these rows do not attend to, as if the request
            had so many tokens less.
        moved: rows of the batch whose keys and values are written first.
        places: rows of the batch to whose slots they are written.
    """

    requests: list[int]
    rows: list[int]
    counts: list[int]
    unseen: list[int]
    moved: list[int]
    places: list[int]


def depths_of(parents: Sequence[int]) -> list[int]:
    """Return the depth of each node: 1 for those that follow the text."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


def principal_length(parents: Sequence[int]) -> int:
    """Return how many nodes at the beginning are a chain."""
    chain = (parent == place - 1 for place, parent in enumerate(parents))
    return next((place for place, is_next in enumerate(chain) if not is_next), len(parents))


def is_chain(parents: Sequence[int]) -> bool:
    """Tell whether each node follows the one before it."""
    return principal_length(parents) == len(parents)


@lru_cache(maxsize=256)
def walks_of(parents: Parents) -> tuple[Walk, ...]:
    """Return the walks of a tree, the principal chain last."""
    at = list(range(len(parents) + 1))  # the row whose key is at each place
    seen = set(range(principal_length(parents) + 1))
    inner = set(parents)
    walks = []
    for node in range(len(parents)):
        if node in inner or node + 1 in seen:
            continue
        path = _path_to(node, parents)
        walks.append(_walk(path, [row for row in path if row not in seen], at))
        seen.update(path)
    chain = list(range(1, principal_length(parents) + 1))
    return (*walks, _walk(chain, [0, *chain], at))


def _path_to(node: int, parents: Parents) -> list[int]:
    """Return the rows from the first node of a path to its last."""
    path = []
    while node >= 0:
        path.append(node + 1)
        node = parents[node]
    return path[::-1]


def _walk(path: list[int], rows: list[int], at: list[int]) -> Walk:
    """Return a walk, and note in ``at`` what it writes."""
    moved = [(row, depth) for depth, row in enumerate(path, 1) if at[depth] != row]
    for row, depth in moved:
        at[depth] = row
    return Walk(
        tuple(rows), len(path), tuple(row for row, _ in moved), tuple(depth for _, depth in moved)
    )


@lru_cache(maxsize=256)
def mask_of(parents: Parents, num_rows: int, width: int) -> np.ndarray:
    """Return which rows of a request a row does not see, bool [width, width].

    Args:
        parents: of the drafts, which are the last rows; those before them are a chain.
        num_rows: number of rows.
        width: number with padding; rows of padding see what the last row sees.
    """
    seen = np.tri(width, dtype=bool)
    root = num_rows - len(parents) - 1
    for node, parent in enumerate(parents):
        row = root + 1 + node
        seen[row] = seen[root + 1 + parent]
        seen[row, row] = True
    seen[num_rows:] = seen[num_rows - 1]
    return ~seen


@lru_cache(maxsize=256)
def bits_of(parents: Parents) -> np.ndarray:
    """Return what the root and the nodes of a tree see, int64 [num_rows].

    Bit b of a row says whether it sees the row b places before the last one. Bits of rows after it
    are set, and those of the text before the root (``ops/tree_attention/__init__.py``).
    """
    num_drafts = len(parents)
    seen: np.ndarray = np.full(num_drafts + 1, -1, dtype=np.int64)
    for node, row in enumerate(~mask_of(parents, num_drafts + 1, num_drafts + 1)[1:], 1):
        for other in np.flatnonzero(~row[:node]):
            seen[node] &= ~(1 << int(num_drafts - other))
    return seen


class StepTrees(NamedTuple):
    """The trees of a step.

    Attributes:
        parents: of each request's drafts; those of a chain for requests without a tree.
        starts: first row of each request in the batch, and the number of rows behind them.
        num_drafts: number of drafts of each request.
    """

    parents: Sequence[Parents]
    starts: Sequence[int]
    num_drafts: Sequence[int]


def plan_rounds(trees: StepTrees) -> list[Round]:
    """Return the calls of the kernel; all rows of requests without trees are in the last."""
    parents, starts, num_drafts = trees
    roots = [end - count - 1 for end, count in zip(starts[1:], num_drafts, strict=True)]
    walks = [walks_of(tuple(own)) for own in parents]
    # From the end: each request's principal chain is in the last round.
    columns = list(zip_longest(*(reversed(own) for own in walks)))[::-1]
    rounds = []
    for column in columns:
        found = Round([], [], [], [], [], [])
        is_last = column is columns[-1]
        for request, walk in enumerate(column):
            if walk is None:
                continue
            root = roots[request]
            before = range(starts[request], root) if is_last else ()
            rows = [*before, *(root + row for row in walk.rows)]
            found.requests.append(request)
            found.rows.extend(rows)
            found.counts.append(len(rows))
            found.unseen.append(num_drafts[request] - walk.depth)
            found.moved.extend(root + row for row in walk.moved)
            found.places.extend(root + depth for depth in walk.depths)
        rounds.append(found)
    return rounds
