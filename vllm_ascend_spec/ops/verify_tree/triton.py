"""Verification of trees in Triton kernels: filter, sample chunks of the rows, join, walk."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.triton_launch import FEWEST_POSITIONS, on_device, problem
from vllm_ascend_spec.ops.verify_seeded.triton import filtered_batch

__all__ = ["problem", "verify_tree"]

# So that the chunks of many rows fit the registers.
MOST_WARPS = 16


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
    from vllm_ascend_spec.ops.triton_kernels.tree import finalize_tree, scan_tree

    num_reqs = cu_num_draft_tokens.shape[0]
    tokens, rows = cu_num_draft_tokens.new_empty((2, num_reqs, max_draft_len + 1))
    counts = cu_num_draft_tokens.new_empty((num_reqs,))
    if num_reqs == 0:
        return tokens, counts, rows
    batch = (logits, draft_token_ids, cu_num_draft_tokens, max_draft_len)
    parents = parents.contiguous()
    with on_device(logits):
        given = filtered_batch(*batch, temperature, top_k, top_p, min_p)
        plan = given.plan
        scan_tree[plan.grid](
            logits,
            logits.stride(0),
            logits.shape[1],
            given.ends,
            parents,
            given.temperature,
            seeds.contiguous(),
            positions.contiguous(),
            given.threshold,
            *given.chunks,
            plan.num_chunks,
            plan.chunks_per_split,
            CHUNK=plan.chunk,
            num_warps=given.num_warps,
        )
        finalize_tree[(num_reqs,)](
            *given.chunks,
            plan.num_chunks,
            given.temperature,
            given.drafts,
            given.ends,
            parents,
            tokens,
            counts,
            rows,
            max_draft_len,
            POSITIONS=plan.positions,
            CHUNKS=plan.padded_chunks,
            num_warps=min(plan.positions // FEWEST_POSITIONS, MOST_WARPS),
        )
    return tokens, counts, rows
