"""Greedy verification in plain PyTorch."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.layout import make_grid


def row_argmax(logits: torch.Tensor) -> torch.Tensor:
    """Return the argmax of each row, int64 [num_rows]; a NaN counts as -inf."""
    values, tokens = logits.max(dim=-1)
    # max() propagates NaN, so one look at the maxima tells whether any row has one.
    if bool(values.isnan().any()):
        tokens = logits.masked_fill(logits.isnan(), float("-inf")).argmax(dim=-1)
    return tokens


def verify_greedy(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`vllm_ascend_spec.ops.verify_greedy.verify_greedy`."""
    grid = make_grid(draft_token_ids, cu_num_draft_tokens, max_draft_len)
    target = row_argmax(logits)[grid.rows]
    # The bonus row has no draft (-1), so it never matches and ends the prefix.
    num_accepted = (target == grid.drafts).cumprod(dim=1).sum(dim=1, keepdim=True)
    output = target.masked_fill(grid.offsets > num_accepted, -1)
    return output.int(), (num_accepted[:, 0] + 1).int()
