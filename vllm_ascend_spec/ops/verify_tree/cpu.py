"""Verification of trees by samples of the target in C++ (``ops/cpu/verify_tree.cpp``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.cpu_library import contiguous, new_outputs, problem

__all__ = ["problem", "verify_tree"]


def verify_tree(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    *,
    parents: torch.Tensor,  # [num_drafts]
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None,  # [num_reqs]
    top_p: torch.Tensor | None,  # [num_reqs]
    min_p: torch.Tensor | None,  # [num_reqs]
    seeds: torch.Tensor,  # [num_reqs]
    positions: torch.Tensor,  # [num_reqs]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See :func:`vllm_ascend_spec.ops.verify_tree.verify_tree`."""
    tokens, counts = new_outputs(cu_num_draft_tokens, max_draft_len)
    paths = torch.empty_like(tokens)
    torch.ops.vllm_ascend_spec_cpu.verify_tree.default(
        tokens,
        counts,
        paths,
        logits,
        draft_token_ids.contiguous(),
        cu_num_draft_tokens.contiguous(),
        max_draft_len,
        parents.contiguous(),
        temperature.contiguous(),
        contiguous(top_k),
        contiguous(top_p),
        contiguous(min_p),
        seeds.contiguous(),
        positions.contiguous(),
    )
    return tokens, counts, paths
