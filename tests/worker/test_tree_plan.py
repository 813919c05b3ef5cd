"""Attention over trees path by path: every row sees the text and its own path, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.worker.tree_plan import (
    StepTrees,
    depths_of,
    mask_of,
    plan_rounds,
    principal_length,
    walks_of,
)

CHAIN = (-1, 0, 1)
COMB = (-1, 0, 1, -1, -1, 0, 1)
BUSHY = (-1, 0, 1, -1, 0, 3, 1, 5, -1, 8)


@st.composite
def trees(draw: st.DrawFn) -> tuple[int, ...]:
    size = draw(st.integers(0, 9))
    return tuple(draw(st.integers(-1, node - 1)) for node in range(size))


def path_of(parents: Sequence[int], row: int) -> list[int]:
    """Return the rows of a node's path, without the text's end."""
    path = []
    while row:
        path.append(row)
        row = parents[row - 1] + 1
    return path[::-1]


def seen_by_each(batch: Sequence[tuple[int, ...]], before: int) -> dict[int, list[int]]:
    """Follow the plan of a batch as an attention kernel would; return the keys each row sees.

    Each request has ``before`` rows in front of the last token of its text. Keys are named by the
    row that wrote them.
    """
    starts = [0]
    for parents in batch:
        starts.append(starts[-1] + before + 1 + len(parents))
    counts = [len(parents) for parents in batch]
    slots = list(range(starts[-1]))  # the key in the slot of each row
    seen: dict[int, list[int]] = {}
    for each in plan_rounds(StepTrees(batch, starts, counts)):
        for row, place in zip(each.moved, each.places, strict=True):
            slots[place] = row
        rows = iter(each.rows)
        for request, count, unseen in zip(each.requests, each.counts, each.unseen, strict=True):
            end = starts[request + 1] - unseen
            for left in range(count, 0, -1):  # causal: the last row sees all
                row = next(rows)
                assert row not in seen
                seen[row] = slots[starts[request] : end - left + 1]
        assert next(rows, None) is None
    kept = dict(enumerate(slots))
    for request, parents in enumerate(batch):
        root = starts[request + 1] - len(parents) - 1
        chain = range(root, root + principal_length(parents) + 1)
        assert all(kept[place] == place for place in chain)
    return seen


@pytest.mark.parametrize("before", [0, 3])
@given(batch=st.lists(trees(), min_size=1, max_size=4))
def test_every_row_sees_its_path(before: int, batch: list[tuple[int, ...]]) -> None:
    seen, start = seen_by_each(batch, before), 0
    for parents in batch:
        root = start + before
        for row in range(start, root):
            assert seen[row] == list(range(start, row + 1))
        for row in range(len(parents) + 1):
            path = [root + other for other in path_of(parents, row)]
            assert seen[root + row] == [*range(start, root + 1), *path]
        start = root + len(parents) + 1


def test_a_chain_takes_one_call_and_moves_nothing() -> None:
    (only,) = plan_rounds(StepTrees([CHAIN, ()], [0, 4, 6], [3, 0]))
    assert only.rows == list(range(6))
    assert only.counts == [4, 2]
    assert only.unseen == [0, 0]
    assert not only.moved


def test_a_comb_writes_each_sibling_once() -> None:
    walks = walks_of(COMB)
    assert [walk.rows for walk in walks] == [(4,), (5,), (6,), (7,), (0, 1, 2, 3)]
    # Row 5 takes the place of 4; the chain's first key comes back for 6, and so on.
    assert [walk.moved for walk in walks] == [(4,), (5,), (1, 6), (2, 7), (3,)]


def test_depths() -> None:
    assert depths_of(BUSHY) == [1, 2, 3, 1, 2, 2, 3, 3, 1, 2]
    assert principal_length(BUSHY) == 3
    assert principal_length(()) == 0


def test_a_row_sees_what_is_before_its_tree_and_its_own_path() -> None:
    # Two rows of text, the last of which is the root, and a tree: two siblings, one with a child.
    seen = ~mask_of((-1, -1, 1), num_rows=5, width=6)
    expected = [[0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3, 4], [0, 1, 3, 4]]
    assert [np.flatnonzero(row).tolist() for row in seen] == expected
    chain = ~mask_of((), num_rows=3, width=3)
    assert chain.tolist() == np.tri(3, dtype=bool).tolist()
