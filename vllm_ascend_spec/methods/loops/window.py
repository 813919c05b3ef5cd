"""A window over the text for a draft model's attention, by whole blocks of the KV cache.

A draft trained on short texts is accepted less often in long ones. With a window its rows attend to
the last tokens only: the blocks before them are left out of the block table, and their tokens out
of the lengths (StreamingLLM, 2309.17453, without its moved positions: every token keeps the
position that it has in the text). KV cache slots are not touched, so the window may change from
step to step. Only drafts depend on it, never the output.
"""

from __future__ import annotations

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
    """The window of an engine's draft.

    Args:
        size: tokens in the window; None for the whole text. It may change between steps.
        most_rows: rows of a request in a decode step, at most.
        max_k: the most drafts of a request.

    A pass with more rows of a request than ``most_rows`` reads a prompt: all its rows attend to the
    whole text.
    """

    def __init__(self, size: int | None, most_rows: int, max_k: int) -> None:
        self.size = size
        self.most_rows, self.max_k = most_rows, max_k

    def left_out_of_rows(
        self,
        lengths: torch.Tensor,  # [num_reqs]
        starts: torch.Tensor,  # [num_reqs + 1]
        block_size: int,
    ) -> torch.Tensor | None:
        """Return what is left out for a pass with several rows per request.

        Args:
            lengths: int32 or int64, tokens up to the first row that needs a whole window.
            starts: int32, first row of each request, and the number of rows.
            block_size: tokens per block of the block table.

        Returns:
            Numbers of tokens, [num_reqs], dtype of ``lengths``; None without a window.
        """
        if self.size is None:
            return None
        left_out = tokens_left_out(lengths, self.size, block_size)
        return left_out.masked_fill_(starts[1:] - starts[:-1] > self.most_rows, 0)

    def left_out_of_last(
        self,
        lengths: torch.Tensor,  # [num_reqs]
        block_size: int,
    ) -> torch.Tensor | None:
        """Return what is left out for passes with one row per request.

        Args:
            lengths: int32 or int64, tokens up to the row of the first of these passes.
            block_size: tokens per block of the block table.

        Returns:
            Numbers of tokens, [num_reqs], dtype of ``lengths``; None without a window.
        """
        return None if self.size is None else tokens_left_out(lengths, self.size, block_size)
