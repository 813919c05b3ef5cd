"""Structured-output masks in AscendC (``ops/ascendc/grammar_mask``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.ascendc_library import library, problem

__all__ = ["grammar_mask", "problem"]


def grammar_mask(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
) -> None:
    """See :func:`vllm_ascend_spec.ops.grammar_mask.grammar_mask`."""
    if bitmask.shape[0] != 0:
        library(logits.device.type).grammar_mask(logits, bitmask, row_indices.contiguous())
