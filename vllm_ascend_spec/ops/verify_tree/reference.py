"""Verification of trees by samples of the target in plain PyTorch and float64."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.layout import Grid, make_grid
from vllm_ascend_spec.ops.verify_seeded.reference import sample_grid


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
    grid = make_grid(draft_token_ids, cu_num_draft_tokens, max_draft_len)
    above = rows_above(grid, parents)
    samples = sample_grid(
        logits,
        grid,
        temperature,
        top_k,
        top_p,
        min_p,
        seeds=seeds,
        positions=positions[:, None] + depths(above),
    )
    return walk(samples, grid.drafts, above)


def rows_above(
    grid: Grid,
    parents: torch.Tensor,  # [num_drafts]
) -> torch.Tensor:
    """Return the row of each row's parent, int64 [num_reqs, max_draft_len + 1].

    It is -1 for the root, for what is no row of the request, and where a parent is not before its
    child.
    """
    above = torch.full_like(grid.rows, -1)
    if parents.shape[0] > 0:
        above[:, 1:] = parents.long()[grid.draft_rows[:, :-1]] + 1
    is_node = (grid.offsets >= 1) & (grid.offsets <= grid.counts)
    return above.masked_fill_(~is_node | (above >= grid.offsets), -1).clamp_(min=-1)


def depths(
    above: torch.Tensor,  # [num_reqs, max_draft_len + 1]
) -> torch.Tensor:
    """Return how deep each row is below the root, int64 [num_reqs, max_draft_len + 1]."""
    depth = torch.zeros_like(above)
    for row in range(1, above.shape[1]):
        parent = above[:, row : row + 1].clamp(min=0)
        depth[:, row] = depth.gather(1, parent)[:, 0] + 1
    return depth


def walk(
    samples: torch.Tensor,  # [num_reqs, max_draft_len + 1]
    drafts: torch.Tensor,  # [num_reqs, max_draft_len + 1]
    above: torch.Tensor,  # [num_reqs, max_draft_len + 1]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Go down from the root as far as a child holds the sample of its parent.

    Args:
        samples: of each row.
        drafts: token of each node, which is that of the row after.
        above: what :func:`rows_above` returns.

    Returns:
        What ``verify_tree`` returns.
    """
    held = torch.full_like(drafts, -1)  # the token of each row's own node
    held[:, 1:] = drafts[:, :-1]
    tokens, rows = torch.full_like(samples, -1), torch.full_like(samples, -1)
    row = torch.zeros_like(samples[:, :1])
    walks = torch.ones_like(row, dtype=torch.bool)
    for step in range(samples.shape[1]):
        token = samples.gather(1, row)
        tokens[:, step : step + 1] = token.masked_fill(~walks, -1)
        rows[:, step : step + 1] = row.masked_fill(~walks, -1)
        is_next = (above == row) & (held == token)
        walks = walks & is_next.any(dim=1, keepdim=True)
        row = is_next.int().argmax(dim=1, keepdim=True)  # the first of them
    return tokens.int(), (rows >= 0).sum(dim=1).int(), rows.int()
