"""The window of a draft's attention: which tokens are left out, and which blocks stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from vllm_ascend_spec.methods.loops.vllm.windowed import WindowedMetadataMixin
from vllm_ascend_spec.methods.loops.window import (
    DraftWindow,
    tokens_left_out,
    without_first_blocks,
)

BLOCK, K = 4, 3


def test_at_least_the_window_is_kept_and_less_than_a_block_more() -> None:
    lengths = torch.arange(1, 200)
    for size in (1, 3, 4, 17):
        left_out = tokens_left_out(lengths, size, BLOCK)
        kept = lengths - left_out
        assert (left_out % BLOCK == 0).all()
        assert (kept >= lengths.clamp(max=size)).all()
        assert (kept < size + BLOCK).all()


def test_the_table_begins_with_the_first_block_kept() -> None:
    table = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 0]], dtype=torch.int32)
    found = without_first_blocks(table, torch.tensor([2 * BLOCK, 0]), BLOCK)
    assert found.dtype == torch.int32
    # A graph reads a table of the width that it was captured with.
    assert found.shape == table.shape
    assert found[0, :2].tolist() == [7, 8]
    assert found[1].tolist() == [1, 2, 3, 0]


def left_out(texts: list[int], rows: list[int], prompts: list[int], size: int = 8) -> list[int]:
    window = DraftWindow(size, most_rows=K + 1, max_k=K)
    starts = torch.tensor([0, *rows]).cumsum(0)
    return window.left_out(
        torch.tensor(texts), starts, torch.tensor(prompts), block_size=BLOCK
    ).tolist()


def test_every_row_of_a_step_has_a_whole_window() -> None:
    # The first of K+1 rows has 27 tokens up to itself, of which 19 may be left out.
    assert left_out([30], [K + 1], [5]) == [16]
    assert left_out([31], [K + 1], [5]) == [20]


def test_a_step_that_reads_a_prompt_leaves_nothing_out() -> None:
    """Whether it is read at once or in pieces, of which the last may be short."""
    assert left_out([30, 30, 30], [30, 1, 1], [30, 30, 29]) == [0, 0, 16]
    # A request that was preempted reads its answer again.
    assert left_out([30], [20], [5]) == [0]


class Stock:
    """The part of vLLM's proposer that builds metadata."""

    def build_per_group_and_layer_attn_metadata(self, metadata: Any, draft_index: int = 0) -> Any:
        return [metadata], metadata


class Proposer(Stock, WindowedMetadataMixin):
    """Both, with the stock method in front of its annotation."""

    block_size = BLOCK

    def __init__(self, size: int | None) -> None:
        self.window = DraftWindow(size, most_rows=K + 1, max_k=K)
        counts = torch.tensor([5, 5, 0]).numpy()
        self.runner: Any = SimpleNamespace(input_batch=SimpleNamespace(num_prompt_tokens=counts))


def metadata(lengths: list[int]) -> Any:
    tensor = torch.tensor(lengths, dtype=torch.int32)
    return SimpleNamespace(
        seq_lens=tensor,
        seq_lens_cpu_upper_bound=tensor,
        query_start_loc=torch.arange(len(lengths) + 1) * (K + 1),
        block_table_tensor=torch.arange(20, dtype=torch.int32).view(2, 10),
        _num_computed_tokens_cache=object(),
    )


def test_a_pass_attends_to_the_window_and_writes_to_the_whole_table() -> None:
    proposer, whole = Proposer(8), metadata([30, 6])
    texts = proposer.texts_of(whole, torch.tensor([2, 0], dtype=torch.int32))
    assert texts.tolist() == [28, 6]
    proposer.set_window(texts, whole)
    cut = proposer.metadata_by_layer(whole)
    assert cut.seq_lens.tolist() == cut.seq_lens_cpu_upper_bound.tolist() == [14, 6]
    assert cut.block_table_tensor[:, :4].tolist() == [[4, 5, 6, 7], [10, 11, 12, 13]]
    assert cut._num_computed_tokens_cache is None
    # Slots are computed from these, and lengths of later steps.
    assert whole.seq_lens.tolist() == [30, 6]
    assert whole.block_table_tensor[0, 0] == 0


def test_a_row_past_the_end_of_the_context_keeps_its_one_token() -> None:
    proposer, whole = Proposer(8), metadata([30, 6])
    proposer.set_window(torch.tensor([30, 6]), whole)
    whole.seq_lens = torch.tensor([1, 1], dtype=torch.int32)
    assert proposer.metadata_by_layer(whole).seq_lens.tolist() == [1, 1]


def test_without_a_window_nothing_changes() -> None:
    proposer, whole = Proposer(8), metadata([30, 6])
    proposer.set_window(torch.tensor([30, 6]), whole)
    # The size may change from step to step.
    proposer.window.size = None
    texts = proposer.texts_of(whole, None)
    assert texts is None
    proposer.set_window(texts, whole)
    assert proposer.metadata_by_layer(whole) is whole
