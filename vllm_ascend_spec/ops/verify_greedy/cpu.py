"""Greedy verification in C++ (``ops/cpu/verify_greedy.cpp``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.cpu_library import new_outputs, problem

__all__ = ["problem", "verify_greedy"]


def verify_greedy(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`vllm_ascend_spec.ops.verify_greedy.verify_greedy`."""
    outputs = new_outputs(cu_num_draft_tokens, max_draft_len)
    torch.ops.vllm_ascend_spec_cpu.verify_greedy.default(
        *outputs,
        logits,
        draft_token_ids.contiguous(),
        cu_num_draft_tokens.contiguous(),
        max_draft_len,
    )
    return outputs
