"""Structured-output masks in C++ (``ops/cpu/grammar_mask.cpp``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.cpu_library import problem

__all__ = ["grammar_mask", "problem"]


def grammar_mask(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
) -> None:
    """See :func:`vllm_ascend_spec.ops.grammar_mask.grammar_mask`."""
    torch.ops.vllm_ascend_spec_cpu.grammar_mask.default(logits, bitmask, row_indices.contiguous())
