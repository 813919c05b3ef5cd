"""Verification of trees in Triton kernels: filter, sample chunks of the rows, join, walk."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.triton_launch import (
    FEWEST_POSITIONS,
    make_plan,
    num_cores,
    on_device,
    problem,
)
from vllm_ascend_spec.ops.verify_sample.triton import SampleBatch, filter_batch

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

    (num_rows, vocab_size), num_reqs = logits.shape, cu_num_draft_tokens.shape[0]
    tokens, rows = cu_num_draft_tokens.new_empty((2, num_reqs, max_draft_len + 1))
    counts = cu_num_draft_tokens.new_empty((num_reqs,))
    if num_reqs == 0:
        return tokens, counts, rows
    plan = make_plan(num_reqs, max_draft_len, vocab_size, num_cores(logits.device))
    batch = SampleBatch(
        logits,
        draft_token_ids.contiguous(),
        cu_num_draft_tokens.contiguous(),
        temperature.contiguous(),
        None,
    )
    parents = parents.contiguous()
    chunks = batch.temperature.new_empty((3, num_rows, plan.num_chunks))
    with on_device(logits):
        threshold = None
        if not (top_k is None and top_p is None and min_p is None):
            threshold = filter_batch(batch, plan, top_k, top_p, min_p).threshold
        scan_tree[plan.grid](
            logits,
            logits.stride(0),
            vocab_size,
            batch.ends,
            parents,
            batch.temperature,
            seeds.contiguous(),
            positions.contiguous(),
            threshold,
            *chunks,
            plan.num_chunks,
            plan.chunks_per_split,
            CHUNK=plan.chunk,
            # Random numbers take twice the registers that logits do.
            num_warps=min(2 * plan.num_warps, 16),
        )
        finalize_tree[(num_reqs,)](
            *chunks,
            plan.num_chunks,
            batch.temperature,
            batch.drafts,
            batch.ends,
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
