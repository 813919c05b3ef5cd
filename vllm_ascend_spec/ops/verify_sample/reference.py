"""Rejection sampling in plain PyTorch and float64: other backends are tested against it."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.layout import Grid, make_grid
from vllm_ascend_spec.ops.verify_greedy.reference import row_argmax

NEGATIVE_INFINITY = float("-inf")


def target_scores(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    temperature: torch.Tensor,  # [num_rows]
    top_k: torch.Tensor | None,  # [num_rows]
    top_p: torch.Tensor | None,  # [num_rows]
    min_p: torch.Tensor | None,  # [num_rows]
) -> torch.Tensor:
    """Return the logarithms of each row's distribution, up to a constant of the row.

    Rows with temperature 0 are computed at temperature 1; a row with nothing above -inf gives
    token 0 all of the mass.

    Returns:
        float64 [num_rows, vocab_size], -inf for what the filters leave out.
    """
    # In place from here on: at batch size 8, new memory costs more than the arithmetic.
    scores = logits.to(torch.float64, copy=True)
    scores /= torch.where(temperature > 0, temperature, 1).double()[:, None]
    best = scores.amax(dim=-1, keepdim=True)
    if not bool(best.isfinite().all()):
        best = _repair(scores)
    if min_p is not None:
        # p(x) >= min_p · max p, in logs.
        floor = best + min_p.double()[:, None].log()
        scores.masked_fill_(scores < floor, NEGATIVE_INFINITY)
    if top_k is not None:
        scores = _keep_top_k(scores, top_k)
    if top_p is not None:
        scores = _keep_top_p(scores, top_p)
    return scores


def target_probs(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    temperature: torch.Tensor,  # [num_rows]
    top_k: torch.Tensor | None,  # [num_rows]
    top_p: torch.Tensor | None,  # [num_rows]
    min_p: torch.Tensor | None,  # [num_rows]
) -> torch.Tensor:
    """Return the target's distribution of each row, float64 [num_rows, vocab_size]."""
    scores = target_scores(logits, temperature, top_k, top_p, min_p)
    return torch.softmax(scores, dim=-1, out=scores)


def _repair(scores: torch.Tensor) -> torch.Tensor:
    """Make every row of ``scores`` valid for softmax, in place; return each row's maximum."""
    scores.masked_fill_(scores.isnan(), NEGATIVE_INFINITY)
    # An infinite logit takes all of the mass; several share it.
    infinite = scores == float("inf")
    scores.masked_fill_(infinite.any(dim=-1, keepdim=True) & ~infinite, NEGATIVE_INFINITY)
    scores.masked_fill_(infinite, 0.0)
    dead = (scores == NEGATIVE_INFINITY).all(dim=-1)
    scores[dead, 0] = 0.0
    return scores.amax(dim=-1, keepdim=True)


def _keep_top_k(scores: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    vocab_size = scores.shape[-1]
    k = torch.where(top_k > 0, top_k, vocab_size).clamp(max=vocab_size).long()[:, None]
    kth = scores.sort(dim=-1, descending=True).values.gather(-1, k - 1)
    return scores.masked_fill(scores < kth, NEGATIVE_INFINITY)


def _keep_top_p(scores: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    ordered = scores.sort(dim=-1, descending=True).values
    probs = torch.softmax(ordered, dim=-1)
    before = probs.cumsum(dim=-1) - probs
    kept = (before < top_p.double()[:, None]) | (top_p[:, None] >= 1)
    # The score of the least likely token that is kept; tokens tied with it are kept too. Scores are
    # compared because two tokens far apart in score may have the same rounded probability.
    threshold = ordered.gather(-1, kept.sum(dim=-1, keepdim=True).clamp(min=1) - 1)
    return scores.masked_fill(scores < threshold, NEGATIVE_INFINITY)


def invert_cdf(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Draw from unnormalised ``weights`` [num_reqs, vocab_size], one token per request."""
    cumulative = weights.cumsum(dim=-1)
    goal = uniform[:, None] * cumulative[:, -1:]
    token = (cumulative <= goal).sum(dim=-1)
    # Rounding can put the goal at the very end; then the last token with weight is drawn.
    positions = torch.arange(weights.shape[-1], device=weights.device)
    last = torch.where(weights > 0, positions, 0).amax(dim=-1)
    return torch.minimum(token, last)


def accepted_by_token_rule(
    grid: Grid,
    probs: torch.Tensor,  # [num_rows, vocab_size]
    draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
    accept_uniform: torch.Tensor,  # [num_drafts]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Accept drafts one at a time (Leviathan et al., 2211.17192).

    Returns:
        Number of accepted drafts, int64 [num_reqs, 1], and the weight of p in the residual after
        them, which is 1 in this rule, float64 [num_reqs, 1].
    """
    token = grid.drafts.clamp(min=0)
    p, q = probs[grid.rows, token], _draft_prob(draft_probs, grid.draft_rows, token)
    accepted = (accept_uniform[grid.draft_rows] * q < p) & (grid.drafts >= 0)
    num_accepted = accepted.cumprod(dim=1).sum(dim=1, keepdim=True)
    return num_accepted, torch.ones_like(num_accepted, dtype=torch.float64)


def accepted_by_block_rule(
    grid: Grid,
    probs: torch.Tensor,  # [num_rows, vocab_size]
    draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
    accept_uniform: torch.Tensor,  # [num_drafts]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Accept drafts by block verification (Sun et al., 2403.10444, algorithm 2).

    It reads every row. docs/block_rule.md proves which rows other backends may leave out, and that
    the rule is lossless; its symbols w, R and h are ``weight``, ``rest`` and ``chance`` here.

    Returns:
        Number of accepted drafts, int64 [num_reqs, 1], and the weight of p in the residual after
        them (the paper's p_tau), float64 [num_reqs, 1].
    """
    # A draft of -1 ends the block: nothing was proposed there, nor after it.
    length = (grid.drafts >= 0).cumprod(dim=1).sum(dim=1)
    weight = torch.ones_like(length, dtype=torch.float64)
    num_accepted, accepted_weight = torch.zeros_like(length), torch.ones_like(weight)
    for position in range(1, grid.drafts.shape[1]):
        row, draft_row = grid.rows[:, position - 1], grid.draft_rows[:, position - 1]
        token = grid.drafts[:, position - 1].clamp(min=0)
        p, q = probs[row, token], _draft_prob(draft_probs, draft_row, token)
        scaled = weight * p
        # A weight of 0 stays 0, also where q is 0 (docs/block_rule.md, lemma 2).
        weight = torch.where(scaled > 0, scaled / q, 0.0).clamp_(max=1.0)
        rest = _residual(grid, probs, draft_probs, position, weight).sum(dim=-1)
        # At a weight of 1 the chance is 1; where p equals q, the quotient would be 0 / 0
        # (docs/block_rule.md, lemma 8). The chance of the last draft is its weight.
        partial = torch.where(weight >= 1, 1.0, rest / (rest + 1 - weight))
        chance = torch.where(length == position, weight, partial)
        accepted = (accept_uniform[draft_row] < chance) & (position <= length)
        num_accepted = torch.where(accepted, position, num_accepted)
        accepted_weight = torch.where(accepted, weight, accepted_weight)
    return num_accepted[:, None], accepted_weight[:, None]


def _draft_prob(
    draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
    draft_row: torch.Tensor,  # [num_reqs]
    token: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    if draft_probs is None:
        return torch.ones_like(token, dtype=torch.float64)
    return _as_probs(draft_probs[draft_row, token])


def _as_probs(entries: torch.Tensor) -> torch.Tensor:
    """Return entries of ``draft_probs`` as float64, NaN and negative ones as 0."""
    return torch.where(entries > 0, entries, 0.0).double()


def _without_nan_drafts(
    grid: Grid,
    draft_probs: torch.Tensor,  # [num_drafts, vocab_size]
) -> Grid:
    """Replace each draft whose own probability is NaN by -1."""
    own = draft_probs[grid.draft_rows, grid.drafts.clamp(min=0)]
    return grid._replace(drafts=grid.drafts.masked_fill(own.isnan(), -1))


def _residual(
    grid: Grid,
    probs: torch.Tensor,  # [num_rows, vocab_size]
    draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
    position: int,
    weight: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    """Return max(weight · p - q, 0) at one position, float64 [num_reqs, vocab_size]."""
    p = probs[grid.rows[:, position]] * weight[:, None]
    if draft_probs is None:
        return p.scatter(1, grid.drafts[:, position].clamp(min=0)[:, None], 0.0)
    return (p - _as_probs(draft_probs[grid.draft_rows[:, position]])).clamp_(min=0.0)


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
    grid = make_grid(draft_token_ids, cu_num_draft_tokens, max_draft_len)
    request = torch.repeat_interleave(grid.counts[:, 0] + 1, output_size=logits.shape[0])
    per_row = [None if x is None else x[request] for x in (top_k, top_p, min_p)]
    probs = target_probs(logits, temperature[request], *per_row)
    greedy = (temperature == 0)[:, None]
    # Argmax of the logits, not of the probabilities: dividing may round two logits to a tie.
    argmax = row_argmax(logits)[grid.rows] if bool(greedy.any()) else torch.zeros_like(grid.rows)

    if draft_token_ids.shape[0] == 0:
        draft_probs, accept_uniform = None, sample_uniform.new_zeros(1)
    # Before drafts whose q is NaN are replaced: greedy requests ignore q.
    matched = (argmax == grid.drafts).cumprod(dim=1).sum(dim=1, keepdim=True)
    drafts = grid.drafts
    if draft_probs is not None:
        grid = _without_nan_drafts(grid, draft_probs)
    sampled, weight = RULES[rule](grid, probs, draft_probs, accept_uniform)
    num_accepted = torch.where(greedy, matched, sampled)

    final = _final_token(grid, probs, draft_probs, num_accepted, weight, sample_uniform)
    final = torch.where(greedy[:, 0], argmax.gather(1, num_accepted)[:, 0], final)
    output = torch.where(grid.offsets < num_accepted, drafts, -1)
    output.scatter_(1, num_accepted, final[:, None])
    return output.int(), (num_accepted[:, 0] + 1).int()


RULES = {"token": accepted_by_token_rule, "block": accepted_by_block_rule}


def _final_token(
    grid: Grid,
    probs: torch.Tensor,  # [num_rows, vocab_size]
    draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
    num_accepted: torch.Tensor,  # [num_reqs, 1]
    weight: torch.Tensor,  # [num_reqs, 1]
    sample_uniform: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    """Draw each request's last token: the correction of a rejected draft, or the bonus token."""
    p = probs[grid.rows.gather(1, num_accepted)[:, 0]]
    rejected = grid.drafts.gather(1, num_accepted)
    if draft_probs is None:
        # The weight makes no difference here (docs/block_rule.md, lemma 7).
        residual = p.scatter(1, rejected.clamp(min=0), 0.0)
    else:
        q = _as_probs(draft_probs[grid.draft_rows.gather(1, num_accepted)[:, 0]])
        residual = (weight * p - q).clamp_(min=0.0)
    # Sample p itself for the bonus token, for a rejected draft of -1, and if the residual is empty,
    # which only rounding causes (docs/block_rule.md, lemma 8).
    keep_p = (rejected < 0) | (residual.sum(dim=-1, keepdim=True) <= 0)
    return invert_cdf(torch.where(keep_p, p, residual), sample_uniform)
