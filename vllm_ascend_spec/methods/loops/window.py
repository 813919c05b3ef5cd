"""A window over the text for a draft model's attention, by whole blocks of the KV cache.

A draft trained on short texts is accepted less often in long ones. With a window its rows attend to
the last tokens only: the blocks before them are left out of the block table, and their tokens out
of the lengths (StreamingLLM, 2309.17453, without its moved positions: every token keeps the
position that it has in the text). KV cache slots are not touched, so the window may change from
step to step. Only drafts depend on it, never the output.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import torch


def tokens_left_out(
    lengths: torch.Tensor,  # [num_reqs]
    size: int,
    block_size: int,
) -> torch.Tensor:
    """Return how many tokens at the start of each text are left out, a multiple of a block.

    Args:
        lengths: int32 or int64, numbers of tokens whose last ``size`` are kept.
        size: tokens in the window.
        block_size: tokens per block of the block table.

    Returns:
        [num_reqs], dtype of ``lengths``; less than a block more than ``size`` tokens are kept.
    """
    return (lengths - size).clamp_(min=0).div(block_size, rounding_mode="floor") * block_size


def without_first_blocks(
    block_table: torch.Tensor,  # [num_reqs, max_blocks]
    left_out: torch.Tensor,  # [num_reqs]
    block_size: int,
) -> torch.Tensor:
    """Return a block table of the same shape that begins with the first block kept.

    Args:
        block_table: int32.
        left_out: int32 or int64, tokens left out.
        block_size: tokens per block.
    """
    width = block_table.shape[1]
    columns = torch.arange(width, device=block_table.device)
    kept = columns + left_out[:, None].long() // block_size
    # What is gathered beyond the end is beyond the lengths, too.
    return block_table.gather(1, kept.clamp_(max=width - 1))


class DraftWindow:
    """The window of a draft loop of vLLM's family, for one pass of the draft after another.

    Args:
        size: tokens in the window; None for the whole text. It may change between steps.
        most_rows: rows of a request in a decode step, at most.
        max_k: the most drafts of a request.

    A pass of more rows than ``most_rows`` reads a prompt: such requests attend to the whole text.
    """

    def __init__(self, size: int | None, most_rows: int, max_k: int) -> None:
        self.size = size
        self._most_rows, self._max_k = most_rows, max_k
        self._left_out: torch.Tensor | None = None

    def cover_rows(
        self,
        metadata: Any,
        last: torch.Tensor,  # [num_reqs]
        block_size: int,
    ) -> None:
        """Set the window for a pass with several rows per request, each with a whole window.

        Args:
            metadata: vLLM's ``CommonAttentionMetadata`` of the pass.
            last: int32 or int64, position of each request's last accepted token.
            block_size: tokens per block of the block table.
        """
        if self.size is None:
            self._left_out = None
            return
        # Accepted rows are at most K before the last one.
        left_out = tokens_left_out(last + 1 - self._max_k, self.size, block_size)
        starts = metadata.query_start_loc
        reads_prompt = starts[1:] - starts[:-1] > self._most_rows
        self._left_out = left_out.masked_fill(reads_prompt, 0)

    def cover_last(
        self,
        last: torch.Tensor,  # [num_reqs]
        block_size: int,
    ) -> None:
        """Set the window for passes with one row per request; arguments as above."""
        self._left_out = None
        if self.size is not None:
            self._left_out = tokens_left_out(last + 1, self.size, block_size)

    def cut(self, metadata: Any, block_size: int) -> Any:
        """Return a copy of the metadata of a pass in which only the window is attended to.

        Bounds of the lengths stay: they are bounds of the shorter lengths, too.
        """
        if self._left_out is None:
            return metadata
        lengths = metadata.seq_lens
        # A row past the end of the context has length 1.
        shorter = (lengths - self._left_out.to(lengths.dtype)).clamp_(min=1)
        table = without_first_blocks(metadata.block_table_tensor, self._left_out, block_size)
        cut = copy(metadata)
        cut.seq_lens, cut.block_table_tensor = shorter, table
        if metadata.seq_lens_cpu_upper_bound is lengths:
            cut.seq_lens_cpu_upper_bound = shorter
        # vLLM computes it from the lengths when it is first asked for.
        cut._num_computed_tokens_cache = None
        return cut
