"""The rows of the verification ops, as padded [num_reqs, max_draft_len + 1] grids."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Grid(NamedTuple):
    """Indices of each request's rows and drafts.

    Attributes:
        offsets: int64 [max_draft_len + 1], position within a request.
        counts: int64 [num_reqs, 1], number of drafts of each request.
        rows: int64 [num_reqs, max_draft_len + 1], index into the logits; clamped where padded.
        drafts: int64 [num_reqs, max_draft_len + 1], draft token ids; -1 where there is none.
        draft_rows: int64 [num_reqs, max_draft_len + 1], index into the drafts; clamped.
    """

    offsets: torch.Tensor
    counts: torch.Tensor
    rows: torch.Tensor
    drafts: torch.Tensor
    draft_rows: torch.Tensor


def make_grid(
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
) -> Grid:
    """Lay the ragged batch out as a grid; a request has a row per draft, then its bonus row."""
    device = draft_token_ids.device
    num_drafts, num_reqs = draft_token_ids.shape[0], cu_num_draft_tokens.shape[0]
    ends = cu_num_draft_tokens.long()[:, None]
    starts = torch.zeros_like(ends)
    starts[1:] = ends[:-1]
    counts = ends - starts
    offsets = torch.arange(max_draft_len + 1, device=device)
    within = torch.minimum(offsets, counts)
    rows = starts + torch.arange(num_reqs, device=device)[:, None] + within
    if num_drafts == 0:
        drafts = torch.full_like(rows, -1)
        return Grid(offsets, counts, rows, drafts, torch.zeros_like(rows))
    draft_rows = (starts + within).clamp_(max=num_drafts - 1)
    drafts = draft_token_ids.long()[draft_rows].masked_fill_(offsets >= counts, -1)
    return Grid(offsets, counts, rows, drafts, draft_rows)


def fake_outputs(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs of the right shape and dtype, for tracing; the meta kernel of several ops."""
    num_reqs = cu_num_draft_tokens.shape[0]
    tokens = logits.new_empty((num_reqs, max_draft_len + 1), dtype=torch.int32)
    return tokens, logits.new_empty((num_reqs,), dtype=torch.int32)
