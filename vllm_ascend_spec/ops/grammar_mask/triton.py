"""Structured-output masks in one Triton kernel, which unpacks the bits in registers."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.triton_launch import on_device, problem, stores_holes

__all__ = ["grammar_mask", "problem"]

# Words of the bitmask that one program unpacks, 32 tokens each.
WORDS = 128


def grammar_mask(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
) -> None:
    """See :func:`vllm_ascend_spec.ops.grammar_mask.grammar_mask`."""
    from vllm_ascend_spec.ops.triton_kernels.mask import mask_rows

    num_masked, num_words = bitmask.shape
    vocab_size = logits.shape[1]
    if num_masked == 0:
        return
    with on_device(logits):
        mask_rows[(num_masked, -(-vocab_size // (32 * WORDS)))](
            logits,
            logits.stride(0),
            vocab_size,
            bitmask,
            num_words,
            row_indices.contiguous(),
            WORDS=WORDS,
            HOLES=stores_holes(logits.device),
            num_warps=4,
        )
