"""Verification by samples of the target in Triton kernels: filter, sample chunks, join them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from vllm_ascend_spec.ops.triton_launch import (
    FEWEST_POSITIONS,
    LaunchPlan,
    make_plan,
    num_cores,
    on_device,
    problem,
)
from vllm_ascend_spec.ops.verify_sample.triton import SampleBatch, filter_batch

__all__ = ["problem", "verify_seeded"]


class SeededBatch(NamedTuple):
    """What the kernels that sample rows with noise of seed and position read and write.

    Attributes:
        plan: how the rows are split.
        drafts: int32 [num_drafts].
        ends: int32 [num_reqs], inclusive cumulative number of drafts.
        temperature: float32 [num_reqs].
        threshold: float32 [num_rows], lowest logit that the filters keep; None without filters.
        chunks: float32 [3, num_rows, num_chunks], to be written.
    """

    plan: LaunchPlan
    drafts: torch.Tensor
    ends: torch.Tensor
    temperature: torch.Tensor
    threshold: torch.Tensor | None
    chunks: torch.Tensor

    @property
    def num_warps(self) -> int:
        """Warps of a program that samples: random numbers take twice the registers of logits."""
        return min(2 * self.plan.num_warps, 16)


def filtered_batch(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    temperature: torch.Tensor,  # [num_reqs]
    *filters: torch.Tensor | None,  # [num_reqs]
) -> SeededBatch:
    """Plan the launches for a batch with requests and filter its rows; the device is current.

    Args:
        logits: as in the op's contract, as are the other arguments.
        draft_token_ids: of all requests.
        cu_num_draft_tokens: of each request.
        max_draft_len: of all requests.
        temperature: of each request.
        filters: top_k, top_p and min_p.
    """
    num_reqs, (num_rows, vocab_size) = cu_num_draft_tokens.shape[0], logits.shape
    plan = make_plan(num_reqs, max_draft_len, vocab_size, num_cores(logits.device))
    drafts, ends = draft_token_ids.contiguous(), cu_num_draft_tokens.contiguous()
    temperature = temperature.contiguous()
    threshold = None
    if any(values is not None for values in filters):
        batch = SampleBatch(logits, drafts, ends, temperature, None)
        threshold = filter_batch(batch, plan, *filters).threshold
    chunks = temperature.new_empty((3, num_rows, plan.num_chunks))
    return SeededBatch(plan, drafts, ends, temperature, threshold, chunks)


def verify_seeded(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    *,
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None,  # [num_reqs]
    top_p: torch.Tensor | None,  # [num_reqs]
    min_p: torch.Tensor | None,  # [num_reqs]
    seeds: torch.Tensor,  # [num_reqs]
    positions: torch.Tensor,  # [num_reqs]
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`vllm_ascend_spec.ops.verify_seeded.verify_seeded`."""
    from vllm_ascend_spec.ops.triton_kernels.seeded import finalize_seeded, scan_seeded

    num_reqs = cu_num_draft_tokens.shape[0]
    tokens = cu_num_draft_tokens.new_empty((num_reqs, max_draft_len + 1))
    counts = cu_num_draft_tokens.new_empty((num_reqs,))
    if num_reqs == 0:
        return tokens, counts
    batch = (logits, draft_token_ids, cu_num_draft_tokens, max_draft_len)
    with on_device(logits):
        given = filtered_batch(*batch, temperature, top_k, top_p, min_p)
        plan = given.plan
        scan_seeded[plan.grid](
            logits,
            logits.stride(0),
            logits.shape[1],
            given.ends,
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
        finalize_seeded[(num_reqs,)](
            *given.chunks,
            plan.num_chunks,
            given.temperature,
            given.drafts,
            given.ends,
            tokens,
            counts,
            max_draft_len,
            POSITIONS=plan.positions,
            CHUNKS=plan.padded_chunks,
            num_warps=min(plan.positions // FEWEST_POSITIONS, 4),
        )
    return tokens, counts
