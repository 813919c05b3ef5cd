"""Greedy verification in AscendC (``ops/ascendc/verify_greedy``)."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.ascendc_library import library, problem
from vllm_ascend_spec.ops.layout import fake_outputs

__all__ = ["problem", "verify_greedy"]


def verify_greedy(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`vllm_ascend_spec.ops.verify_greedy.verify_greedy`."""
    drafts, ends = draft_token_ids.contiguous(), cu_num_draft_tokens.contiguous()
    if ends.shape[0] == 0:
        return fake_outputs(logits, drafts, ends, max_draft_len)
    return library(logits.device.type).verify_greedy(logits, drafts, ends, max_draft_len)
