"""Greedy verification in two Triton kernels: one reads the logits, one verifies each request."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.triton_launch import (
    FEWEST_POSITIONS,
    make_plan,
    num_cores,
    on_device,
    problem,
)

__all__ = ["problem", "verify_greedy"]


def verify_greedy(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`vllm_ascend_spec.ops.verify_greedy.verify_greedy`."""
    from vllm_ascend_spec.ops.triton_kernels.greedy import finalize_greedy, scan_greedy

    (num_rows, vocab_size), num_reqs = logits.shape, cu_num_draft_tokens.shape[0]
    tokens = cu_num_draft_tokens.new_empty((num_reqs, max_draft_len + 1))
    counts = cu_num_draft_tokens.new_empty((num_reqs,))
    if num_reqs == 0:
        return tokens, counts
    plan = make_plan(num_reqs, max_draft_len, vocab_size, num_cores(logits.device))
    peak, best = logits.new_empty((2, num_rows, plan.num_chunks), dtype=torch.float32)
    ends = cu_num_draft_tokens.contiguous()
    with on_device(logits):
        scan_greedy[plan.grid](
            logits,
            logits.stride(0),
            vocab_size,
            ends,
            peak,
            best,
            plan.num_chunks,
            plan.chunks_per_split,
            CHUNK=plan.chunk,
            num_warps=plan.num_warps,
        )
        finalize_greedy[(num_reqs,)](
            peak,
            best,
            plan.num_chunks,
            draft_token_ids.contiguous(),
            ends,
            tokens,
            counts,
            max_draft_len,
            POSITIONS=plan.positions,
            TILE=plan.tile(plan.num_chunks),
            num_warps=min(plan.positions // FEWEST_POSITIONS, 4),
        )
    return tokens, counts
