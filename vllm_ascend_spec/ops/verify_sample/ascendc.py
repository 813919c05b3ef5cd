"""Rejection sampling in AscendC (``ops/ascendc/verify_sample``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.ascendc_library import library, problem
from vllm_ascend_spec.ops.layout import fake_outputs

__all__ = ["problem", "verify_sample"]


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
    drafts, ends = draft_token_ids.contiguous(), cu_num_draft_tokens.contiguous()
    if ends.shape[0] == 0:
        return fake_outputs(logits, drafts, ends, max_draft_len)
    if drafts.shape[0] == 0:
        draft_probs = None  # without drafts it has no rows
    elif draft_probs is not None and draft_probs.stride(1) != 1:
        draft_probs = draft_probs.contiguous()
    return library(logits.device.type).verify_sample(
        logits,
        drafts,
        ends,
        max_draft_len,
        temperature=temperature.contiguous(),
        top_k=_contiguous(top_k),
        top_p=_contiguous(top_p),
        min_p=_contiguous(min_p),
        draft_probs=draft_probs,
        accept_uniform=accept_uniform.contiguous(),
        sample_uniform=sample_uniform.contiguous(),
        rule=rule,
    )


def _contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()
