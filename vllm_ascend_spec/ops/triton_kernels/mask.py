"""Structured-output masks: forbidden logits become -inf."""

from __future__ import annotations

import triton.language as tl

from .arith import kernel


@kernel
def mask_rows(
    logits,  # [num_rows, vocab_size], written
    row_stride,
    vocab_size,
    bitmask,  # [num_masked, num_words] int32
    num_words,
    row_indices,  # [num_masked] int32
    WORDS: tl.constexpr,
    HOLES: tl.constexpr,
):
    """Mask 32 * WORDS tokens of one row. Grid: masks, blocks of words.

    Without ``HOLES``, no store leaves out single elements within a block: on Ascend such a store
    would also write past the vocabulary.
    """
    mask_index, block = tl.program_id(0), tl.program_id(1)
    index = tl.load(row_indices + mask_index)
    if index >= 0:
        word = block * WORDS + tl.arange(0, WORDS)
        bit = tl.arange(0, 32)
        words = tl.load(
            bitmask + mask_index.to(tl.int64) * num_words + word, mask=word < num_words, other=0
        )
        forbidden = ((words[:, None] >> bit[None, :]) & 1) == 0
        forbidden = tl.reshape(forbidden, (WORDS * 32,))
        token = block * WORDS * 32 + tl.arange(0, WORDS * 32)
        row = logits + index.to(tl.int64) * row_stride
        inside = token < vocab_size
        if HOLES:
            tl.store(row + token, float("-inf"), mask=inside & forbidden)
        else:
            x = tl.load(row + token, mask=inside, other=0.0)
            tl.store(row + token, tl.where(forbidden, float("-inf"), x), mask=inside)
