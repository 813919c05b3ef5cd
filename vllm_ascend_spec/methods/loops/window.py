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
    """The window of an engine's draft. All draft steps of an engine step have the same one.

    Args:
        size: tokens in the window; None for the whole text. It may change between steps.
        most_rows: rows of a request in a decode step, at most.
        max_k: the most drafts of a request.
    """

    def __init__(self, size: int | None, most_rows: int, max_k: int) -> None:
        self.size = size
        self.most_rows, self.max_k = most_rows, max_k

    def left_out(
        self,
        texts: torch.Tensor,  # [num_reqs]
        starts: torch.Tensor,  # [num_reqs + 1]
        prompts: torch.Tensor | int,  # [num_reqs]
        block_size: int,
    ) -> torch.Tensor:
        """Return how many tokens of each request are left out.

        Nothing is left out in a step that reads a prompt, whose rows each want a window of their
        own. So the drafts do not depend on the pieces in which a prompt is read.

        Args:
            texts: int32 or int64, tokens of each request that have been computed and accepted.
            starts: int32, first row of each request in draft step 1, and the number of rows.
            prompts: int32 or int64, tokens of each prompt.
            block_size: tokens per block of the block table.

        Returns:
            [num_reqs], dtype of ``texts``.
        """
        assert self.size is not None
        # Accepted rows of draft step 1 are at most K before the last one.
        left_out = tokens_left_out(texts - self.max_k, self.size, block_size)
        reads_prompt = (texts <= prompts) | (starts[1:] - starts[:-1] > self.most_rows)
        return left_out.masked_fill_(reads_prompt, 0)
