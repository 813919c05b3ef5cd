"""Rejection sampling in C++ (``ops/cpu/verify_sample.cpp``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.cpu_library import contiguous, new_outputs, problem

__all__ = ["problem", "verify_sample"]

# Must match ops/cpu/verify.h.
RULES = {"token": 0, "block": 1}


def verify_sample(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    *,
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None,  # [num_reqs]
    top_p: torch.Tensor | None,  # [num_reqs]
    min_p: torch.Tensor | None,  # [num_reqs]
    draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
    accept_uniform: torch.Tensor,  # [num_drafts]
    sample_uniform: torch.Tensor,  # [num_reqs]
    rule: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`vllm_ascend_spec.ops.verify_sample.verify_sample`."""
    outputs = new_outputs(cu_num_draft_tokens, max_draft_len)
    if draft_probs is not None and draft_probs.stride(1) != 1:
        draft_probs = draft_probs.contiguous()
    torch.ops.vllm_ascend_spec_cpu.verify_sample.default(
        *outputs,
        logits,
        draft_token_ids.contiguous(),
        cu_num_draft_tokens.contiguous(),
        max_draft_len,
        temperature.contiguous(),
        contiguous(top_k),
        contiguous(top_p),
        contiguous(min_p),
        draft_probs,
        accept_uniform.contiguous(),
        sample_uniform.contiguous(),
        RULES[rule],
    )
    return outputs
