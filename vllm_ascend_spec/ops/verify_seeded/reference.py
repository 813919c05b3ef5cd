"""Verification by samples of the target in plain PyTorch and float64."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.layout import Grid, make_grid
from vllm_ascend_spec.ops.verify_greedy.reference import row_argmax
from vllm_ascend_spec.ops.verify_sample.reference import target_scores
from vllm_ascend_spec.ops.verify_seeded.noise import noise


def sample_rows(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    temperature: torch.Tensor,  # [num_rows]
    top_k: torch.Tensor | None,  # [num_rows]
    top_p: torch.Tensor | None,  # [num_rows]
    min_p: torch.Tensor | None,  # [num_rows]
    *,
    seeds: torch.Tensor,  # [num_rows]
    positions: torch.Tensor,  # [num_rows]
) -> torch.Tensor:
    """Return a sample of each row's distribution, int64 [num_rows]."""
    scores = target_scores(logits, temperature, top_k, top_p, min_p)
    return (scores - noise(seeds, positions, logits.shape[1]).log()).argmax(dim=-1)


def sample_grid(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    grid: Grid,
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None,  # [num_reqs]
    top_p: torch.Tensor | None,  # [num_reqs]
    min_p: torch.Tensor | None,  # [num_reqs]
    *,
    seeds: torch.Tensor,  # [num_reqs]
    positions: torch.Tensor,  # [num_reqs, max_draft_len + 1]
) -> torch.Tensor:
    """Return the token of each row, int64 [num_reqs, max_draft_len + 1]; greedily: the argmax.

    Args:
        logits: as in the op's contract, as are the parameters of the requests.
        grid: where the rows are; what lies beyond a request's rows repeats its last one.
        temperature: of each request.
        top_k: of each request.
        top_p: of each request.
        min_p: of each request.
        seeds: of each request.
        positions: of the token that each row yields.
    """
    num_rows = grid.counts[:, 0] + 1
    request = torch.repeat_interleave(num_rows, output_size=logits.shape[0])
    per_row = [None if x is None else x[request] for x in (top_k, top_p, min_p)]
    first = num_rows.cumsum(0) - num_rows
    place = torch.arange(logits.shape[0], device=logits.device) - first[request]
    sampled = sample_rows(
        logits,
        temperature[request],
        *per_row,
        seeds=seeds[request],
        positions=positions[request, place],
    )
    return torch.where(temperature[request] == 0, row_argmax(logits), sampled)[grid.rows]


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
    grid = make_grid(draft_token_ids, cu_num_draft_tokens, max_draft_len)
    tokens = sample_grid(
        logits,
        grid,
        temperature,
        top_k,
        top_p,
        min_p,
        seeds=seeds,
        positions=positions[:, None] + grid.offsets,
    )
    num_accepted = (tokens == grid.drafts).cumprod(dim=1).sum(dim=1, keepdim=True)
    output = torch.where(grid.offsets <= num_accepted, tokens, -1)
    return output.int(), (num_accepted[:, 0] + 1).int()
