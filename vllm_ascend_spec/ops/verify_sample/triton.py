"""Rejection sampling in two Triton kernels: one reduces the rows, one verifies each request."""

from __future__ import annotations

from typing import NamedTuple

import torch

from vllm_ascend_spec.ops.triton_launch import (
    USUAL_SIDE,
    LaunchPlan,
    is_aligned,
    lanes_of,
    make_plan,
    num_cores,
    on_device,
    problem,
    words_of,
)

__all__ = ["problem", "verify_sample"]

# Few enough lanes per warp that the largest logits of a row stay in registers.
LANES_PER_WARP = 256
# Stages of pipelined loops over rows: as many as registers and shared memory have room for.
DEEP_STAGES, SHALLOW_STAGES, SETTLE_STAGES = 6, 2, 4
# Number of low bits that are always 0 in a float32 converted from a logit of this dtype.
EMPTY_BITS = {torch.float32: 0, torch.bfloat16: 16, torch.float16: 13}


class SampleBatch(NamedTuple):
    """The arguments that both kernels read.

    Attributes:
        logits: [num_rows, vocab_size].
        drafts: int32 [num_drafts].
        ends: int32 [num_reqs], inclusive cumulative number of drafts.
        temperature: float32 [num_reqs].
        draft_probs: float32 [num_drafts, vocab_size] or None.
    """

    logits: torch.Tensor
    drafts: torch.Tensor
    ends: torch.Tensor
    temperature: torch.Tensor
    draft_probs: torch.Tensor | None


class RowSums(NamedTuple):
    """Results of the first kernel, which the second one reads.

    Attributes:
        draft_score: float32 [num_rows], logit of each row's draft.
        draft_prob: float32 [num_rows], that draft's entry of draft_probs; unset without them.
        peak: float32 [num_rows, num_parts], largest logit of each part of a row.
        mass: float32 [num_rows, num_parts], sum of exp((x - peak) / T); if greedy, the argmax.
        threshold: float32 [num_rows], lowest logit that the filters keep; None without filters.
    """

    draft_score: torch.Tensor
    draft_prob: torch.Tensor
    peak: torch.Tensor
    mass: torch.Tensor
    threshold: torch.Tensor | None


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
    num_reqs = cu_num_draft_tokens.shape[0]
    tokens = cu_num_draft_tokens.new_empty((num_reqs, max_draft_len + 1))
    counts = cu_num_draft_tokens.new_empty((num_reqs,))
    if num_reqs == 0:
        return tokens, counts
    batch = SampleBatch(
        logits,
        draft_token_ids.contiguous(),
        cu_num_draft_tokens.contiguous(),
        temperature.contiguous(),
        None if draft_probs is None else draft_probs.contiguous(),
    )
    plan = make_plan(num_reqs, max_draft_len, logits.shape[1], num_cores(logits.device))
    with on_device(logits):
        if top_k is None and top_p is None and min_p is None:
            sums = _scan(batch, plan)
        else:
            sums = filter_batch(batch, plan, top_k, top_p, min_p)
        uniforms = words_of(accept_uniform), words_of(sample_uniform)
        _settle(batch, plan, sums, uniforms, rule, tokens, counts)
    return tokens, counts


def _scan(batch: SampleBatch, plan: LaunchPlan) -> RowSums:
    from vllm_ascend_spec.ops.triton_kernels.scan import scan_sampled

    num_rows, vocab_size = batch.logits.shape
    score, prob = batch.temperature.new_empty((2, num_rows))
    peak, mass = batch.temperature.new_empty((2, num_rows, plan.num_chunks))
    scan_sampled[plan.grid](
        batch.logits,
        batch.logits.stride(0),
        vocab_size,
        batch.drafts,
        batch.ends,
        batch.temperature,
        batch.draft_probs,
        score,
        prob,
        peak,
        mass,
        plan.num_chunks,
        plan.chunks_per_split,
        CHUNK=plan.chunk,
        num_warps=plan.num_warps,
    )
    return RowSums(score, prob, peak, mass, None)


def filter_batch(
    batch: SampleBatch,
    plan: LaunchPlan,
    top_k: torch.Tensor | None,  # [num_reqs]
    top_p: torch.Tensor | None,  # [num_reqs]
    min_p: torch.Tensor | None,  # [num_reqs]
) -> RowSums:
    """Find each row's lowest logit that the filters keep, and weigh what they keep."""
    from vllm_ascend_spec.ops.triton_kernels.filters import filter_rows

    num_rows, vocab_size = batch.logits.shape
    score, prob, peak, mass, threshold = batch.temperature.new_empty((5, num_rows))
    lanes = lanes_of(vocab_size, batch.logits.device)
    filter_rows[plan.grid[:2]](
        batch.logits,
        batch.logits.stride(0),
        vocab_size,
        batch.drafts,
        batch.ends,
        batch.temperature,
        *(None if x is None else x.contiguous() for x in (top_k, top_p, min_p)),
        batch.draft_probs,
        score,
        prob,
        peak,
        mass,
        threshold,
        SHIFT=EMPTY_BITS[batch.logits.dtype],
        LANES=lanes,
        DEEP=DEEP_STAGES if is_aligned(batch.logits) else 1,
        SHALLOW=SHALLOW_STAGES if is_aligned(batch.logits) else 1,
        num_warps=max(lanes // LANES_PER_WARP, 1),
    )
    return RowSums(score, prob, peak[:, None], mass[:, None], threshold)


def _settle(
    batch: SampleBatch,
    plan: LaunchPlan,
    sums: RowSums,
    uniforms: tuple[torch.Tensor, torch.Tensor],  # int32 words of [num_drafts] and [num_reqs]
    rule: str,
    tokens: torch.Tensor,  # [num_reqs, max_draft_len + 1], written
    counts: torch.Tensor,  # [num_reqs], written
) -> None:
    from vllm_ascend_spec.ops.triton_kernels.finalize import finalize_sampled

    num_parts = sums.peak.shape[1]
    reads_rows = sums.threshold is not None or batch.draft_probs is not None
    finalize_sampled[plan.grid[:1]](
        batch.logits,
        batch.logits.stride(0),
        batch.logits.shape[1],
        batch.drafts,
        batch.ends,
        batch.temperature,
        batch.draft_probs,
        *uniforms,
        sums.draft_score,
        sums.draft_prob,
        sums.peak,
        sums.mass,
        sums.threshold,
        num_parts,
        tokens,
        counts,
        tokens.shape[1] - 1,
        BLOCK_RULE=rule == "block",
        POSITIONS=plan.positions,
        TILE=plan.tile(num_parts),
        CHUNKS=plan.padded_chunks,
        SIDE=plan.side,
        STAGES=SETTLE_STAGES if plan.side <= USUAL_SIDE and is_aligned(batch.logits) else 1,
        num_warps=max(plan.num_warps, 8) if reads_rows else plan.num_warps,
    )
