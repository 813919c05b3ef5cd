"""The padded grid that lays out a ragged batch."""

from __future__ import annotations

import torch
from hypothesis import given

from tests.ops import batches
from tests.ops.batches import int32
from vllm_ascend_spec.ops.layout import make_grid


def test_grid_of_a_ragged_batch() -> None:
    grid = make_grid(int32([5, 6, 7]), int32([2, 2, 3]), 2)
    assert grid.offsets.tolist() == [0, 1, 2]
    assert grid.counts.tolist() == [[2], [0], [1]]
    assert grid.rows.tolist() == [[0, 1, 2], [3, 3, 3], [4, 5, 5]]
    assert grid.drafts.tolist() == [[5, 6, -1], [-1, -1, -1], [7, -1, -1]]


def test_grid_without_drafts() -> None:
    grid = make_grid(int32([]), int32([0, 0]), 1)
    assert grid.rows.tolist() == [[0, 0], [1, 1]]
    assert grid.drafts.tolist() == [[-1, -1], [-1, -1]]
    assert grid.draft_rows.tolist() == [[0, 0], [0, 0]]


def test_grid_without_requests() -> None:
    grid = make_grid(int32([]), int32([]), 3)
    assert grid.rows.shape == grid.drafts.shape == (0, 4)


def test_grid_keeps_drafts_of_minus_one() -> None:
    assert make_grid(int32([-1, 3]), int32([2]), 2).drafts.tolist() == [[-1, 3, -1]]


@given(lengths=batches.lengths)
def test_every_row_and_draft_has_its_cell(lengths: list[int]) -> None:
    drafts = torch.arange(100, 100 + sum(lengths), dtype=torch.int32)
    grid = make_grid(drafts, torch.tensor(lengths).cumsum(0).int(), max(lengths) + 1)
    row = draft = 0
    for request, count in enumerate(lengths):
        for offset in range(count):
            assert grid.drafts[request, offset] == 100 + draft
            assert grid.draft_rows[request, offset] == draft
            draft += 1
        assert grid.rows[request, : count + 1].tolist() == list(range(row, row + count + 1))
        assert (grid.drafts[request, count:] == -1).all()
        row += count + 1


@given(lengths=batches.lengths)
def test_padding_stays_within_the_tensors(lengths: list[int]) -> None:
    drafts = torch.zeros(sum(lengths), dtype=torch.int32)
    grid = make_grid(drafts, torch.tensor(lengths).cumsum(0).int(), max(lengths) + 2)
    assert grid.rows.min() >= 0
    assert grid.rows.max() < sum(lengths) + len(lengths)
    assert grid.draft_rows.min() >= 0
    assert grid.draft_rows.max() < max(sum(lengths), 1)
