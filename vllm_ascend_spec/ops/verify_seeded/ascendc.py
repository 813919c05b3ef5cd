"""Verification by samples of the target in AscendC (``ops/ascendc/verify_seeded``)."""

from __future__ import annotations

import functools

import torch

from vllm_ascend_spec.ops import ascendc_library
from vllm_ascend_spec.ops.ascendc_check import noise_problem
from vllm_ascend_spec.ops.ascendc_library import library
from vllm_ascend_spec.ops.layout import fake_outputs


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
    drafts, ends = draft_token_ids.contiguous(), cu_num_draft_tokens.contiguous()
    if ends.shape[0] == 0:
        return fake_outputs(logits, drafts, ends, max_draft_len)
    return library(logits.device.type).verify_seeded(
        logits,
        drafts,
        ends,
        max_draft_len,
        temperature=temperature.contiguous(),
        top_k=_contiguous(top_k),
        top_p=_contiguous(top_p),
        min_p=_contiguous(min_p),
        seeds=seeds.contiguous(),
        positions=positions.contiguous(),
    )


def problem(device_type: str) -> str | None:
    """Return why the backend cannot run on a device, or None if it can."""
    if found := ascendc_library.problem(device_type):
        return found
    return _npu_problem() if device_type == "npu" and hasattr(torch, "npu") else None


@functools.cache
def _npu_problem() -> str | None:
    return noise_problem(library("npu"), "npu")


def _contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()
