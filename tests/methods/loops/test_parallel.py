"""Masks near the end of the context, and the rows that drafts are read from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from vllm_ascend_spec.methods.loops.parallel import PADDING_SLOT, keep_inside, rows_of_drafts

LONGEST, BLOCK = 8, 4


def metadata(*, causal: bool, longest: int) -> Any:
    return SimpleNamespace(
        slot_mapping=torch.arange(6),
        block_table_tensor=torch.tensor([[5, 6], [7, 8]], dtype=torch.int32),
        seq_lens=torch.tensor([4, longest], dtype=torch.int32),
        max_seq_len=longest,
        causal=causal,
    )


def test_masks_beyond_the_end_write_nowhere() -> None:
    positions, found = torch.tensor([2, 3, 4, 6, 7, 8]), metadata(causal=True, longest=9)
    keep_inside(found, positions, LONGEST, BLOCK)
    assert positions.tolist() == [2, 3, 4, 6, 7, 7]
    assert found.slot_mapping.tolist() == [0, 1, 2, 3, 4, PADDING_SLOT]


def test_a_causal_pass_keeps_its_lengths_and_gets_a_wider_table() -> None:
    found = metadata(causal=True, longest=13)
    keep_inside(found, torch.zeros(6, dtype=torch.int64), LONGEST, BLOCK)
    assert found.seq_lens.tolist() == [4, 13]
    assert found.block_table_tensor.tolist() == [[5, 6, 0, 0], [7, 8, 0, 0]]


def test_a_table_that_is_wide_enough_stays() -> None:
    found = metadata(causal=True, longest=8)
    keep_inside(found, torch.zeros(6, dtype=torch.int64), LONGEST, BLOCK)
    assert found.block_table_tensor.shape == (2, 2)


def test_a_block_that_sees_all_of_itself_sees_nothing_beyond_the_end() -> None:
    found = metadata(causal=False, longest=13)
    keep_inside(found, torch.zeros(6, dtype=torch.int64), LONGEST, BLOCK)
    assert found.seq_lens.tolist() == [4, LONGEST]
    assert found.block_table_tensor.shape == (2, 2)


def test_rows_of_fewer_drafts_than_masks() -> None:
    indices = torch.tensor([3, 4, 5, 9, 10, 11])
    assert rows_of_drafts(indices, 2, 2).tolist() == [[3, 4], [9, 10]]
    assert rows_of_drafts(indices, 2, 0).shape == (2, 0)
