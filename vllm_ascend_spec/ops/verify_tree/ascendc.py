"""Verification of trees by samples of the target in AscendC (``ops/ascendc/verify_tree``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.ascendc_library import library
from vllm_ascend_spec.ops.verify_seeded.ascendc import problem
from vllm_ascend_spec.ops.verify_tree import fake_outputs

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
    drafts, ends = draft_token_ids.contiguous(), cu_num_draft_tokens.contiguous()
    if ends.shape[0] == 0:
        return fake_outputs(logits, drafts, ends, max_draft_len)
    return library(logits.device.type).verify_tree(
        logits,
        drafts,
        ends,
        max_draft_len,
        parents=parents.contiguous(),
        temperature=temperature.contiguous(),
        top_k=_contiguous(top_k),
        top_p=_contiguous(top_p),
        min_p=_contiguous(min_p),
        seeds=seeds.contiguous(),
        positions=positions.contiguous(),
    )


def _contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()
