"""Structured-output masks in plain PyTorch."""

from __future__ import annotations

import torch


def grammar_mask(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
) -> None:
    """See :func:`vllm_ascend_spec.ops.grammar_mask.grammar_mask`."""
    used = row_indices >= 0
    rows, words = row_indices[used].long(), bitmask[used]
    bits = torch.arange(32, dtype=torch.int32, device=bitmask.device)
    allowed = ((words[:, :, None] >> bits) & 1).bool().flatten(1)[:, : logits.shape[1]]
    logits[rows] = logits[rows].masked_fill(~allowed, float("-inf"))
