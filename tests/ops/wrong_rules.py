"""Rules and filters that look right and are not; the tests of the distribution must find them out.

Each has the signature of the piece of ``verify_sample/reference.py`` that it replaces, by
:func:`put_in`. Most were seen somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vllm_ascend_spec.ops.layout import Grid
from vllm_ascend_spec.ops.verify_sample import reference

Accepted = tuple[torch.Tensor, torch.Tensor]

right_final_token = reference._final_token
right_probs = reference.target_probs
right_rules = dict(reference.RULES)


# --- what follows the accepted drafts ---------------------------------------------------------


def recover_from_target(
    grid: Grid, probs: torch.Tensor, q: Any, accepted: Any, weight: Any, uniform: Any
) -> torch.Tensor:
    """Wrong: the correction is drawn from p, not from the residual."""
    del q, weight
    return reference.invert_cdf(probs[grid.rows.gather(1, accepted)[:, 0]], uniform)


def recover_without_draft_only(
    grid: Grid, probs: torch.Tensor, q: Any, accepted: Any, weight: Any, uniform: Any
) -> torch.Tensor:
    """Wrong for sampled drafts: p without the rejected token, as if the draft had been certain."""
    del q
    return right_final_token(grid, probs, None, accepted, weight, uniform)


def recover_from_the_next_draft(
    grid: Grid, probs: torch.Tensor, q: Any, accepted: Any, weight: Any, uniform: Any
) -> torch.Tensor:
    """Wrong: the residual takes q from another draft's row."""
    return right_final_token(grid, probs, q.roll(1, 0), accepted, weight, uniform)


def recover_by_the_token_rule(
    grid: Grid, probs: torch.Tensor, q: Any, accepted: Any, weight: torch.Tensor, uniform: Any
) -> torch.Tensor:
    """Wrong for the block rule: the residual is max(p - q, 0), without the block's weight."""
    return right_final_token(grid, probs, q, accepted, torch.ones_like(weight), uniform)


# --- how many drafts are accepted: either rule ------------------------------------------------


def ignoring_the_draft(rule: str) -> Callable[..., Accepted]:
    """Wrong for sampled drafts: p(x) instead of p(x) / q(x)."""
    return lambda grid, probs, q, uniform: right_rules[rule](grid, probs, None, uniform)


def too_often(rule: str) -> Callable[..., Accepted]:
    """Wrong: one in twenty acceptances too many."""
    return lambda grid, probs, q, uniform: right_rules[rule](grid, probs, q, uniform * 0.95)


# --- how many drafts are accepted: the block rule ---------------------------------------------


def block_weights(grid: Grid, probs: torch.Tensor, q: Any, *, most: float = 1.0) -> torch.Tensor:
    """Return w_1 ... w_n, limited to ``most`` at each step, float64 [num_reqs, max_draft_len]."""
    token = grid.drafts[:, :-1].clamp(min=0)
    p = probs[grid.rows[:, :-1], token]
    chance = 1.0 if q is None else q[grid.draft_rows[:, :-1], token].double()
    ratios = torch.where(grid.drafts[:, :-1] >= 0, p / chance, 0.0)
    weights, weight = [], torch.ones_like(ratios[:, 0])
    for ratio in ratios.unbind(1):
        weight = (weight * ratio).clamp(max=most)
        weights.append(weight)
    return torch.stack(weights, dim=1).clamp(max=1.0)


def up_to_the_last(accepted: torch.Tensor, weights: torch.Tensor) -> Accepted:
    """Return the position after the last accepted one, and the weight there."""
    numbers = torch.arange(1, accepted.shape[1] + 1)
    count = (accepted * numbers).amax(dim=1, keepdim=True)
    with_none = torch.cat([torch.ones_like(weights[:, :1]), weights], dim=1)
    return count, with_none.gather(1, count)


def by_products_of_uniforms(
    grid: Grid, probs: torch.Tensor, q: Any, uniform: torch.Tensor
) -> Accepted:
    """Wrong: w_i against the product of the uniforms so far, instead of u_i against h_i."""
    weights = block_weights(grid, probs, q)
    products = uniform[grid.draft_rows[:, :-1]].cumprod(dim=1)
    return up_to_the_last((weights > 0) & (weights >= products), weights)


def by_products_with_token_residual(
    grid: Grid, probs: torch.Tensor, q: Any, uniform: torch.Tensor
) -> Accepted:
    """Wrong twice, as in vllm-ascend: products of uniforms, corrections of the token rule."""
    count, weight = by_products_of_uniforms(grid, probs, q, uniform)
    return count, torch.ones_like(weight)


def by_weights_alone(grid: Grid, probs: torch.Tensor, q: Any, uniform: torch.Tensor) -> Accepted:
    """Wrong: every position by w_i, which is right for the last only."""
    weights = block_weights(grid, probs, q)
    return up_to_the_last(uniform[grid.draft_rows[:, :-1]] < weights, weights)


def with_unlimited_weights(
    grid: Grid, probs: torch.Tensor, q: Any, uniform: torch.Tensor
) -> Accepted:
    """Wrong: the weights are limited to 1 at the end, not at each step."""
    weights = block_weights(grid, probs, q, most=float("inf"))
    chances = block_weights(grid, probs, q)
    for position in range(1, weights.shape[1]):
        w = weights[:, position - 1]
        rest = reference._residual(grid, probs, q, position, w).sum(dim=-1)
        h = torch.where(w >= 1, 1.0, rest / (rest + 1 - w))
        is_last = grid.counts[:, 0] == position
        chances[:, position - 1] = torch.where(is_last, w, h)
    return up_to_the_last(uniform[grid.draft_rows[:, :-1]] < chances, weights)


def up_to_the_first_refused(
    grid: Grid, probs: torch.Tensor, q: Any, uniform: torch.Tensor
) -> Accepted:
    """Wrong: the block's thresholds, but no draft is accepted after one that is not.

    Not in where the breakpoints lie, but in what they mean: ``steps_explain`` sees it.
    """
    counts = []
    for position in range(grid.drafts.shape[1] - 1):
        only = torch.ones_like(uniform)
        own = grid.draft_rows[:, position]
        only[own] = uniform[own]
        counts.append(right_rules["block"](grid, probs, q, only)[0][:, 0] > position)
    accepted = torch.stack(counts, dim=1).long().cumprod(dim=1)
    return up_to_the_last(accepted, block_weights(grid, probs, q))


# --- drafts' distributions that hold NaN ------------------------------------------------------


def with_nan_drafts(grid: Grid, q: Any) -> Grid:
    """Wrong: drafts of NaN are judged by q, as others are."""
    del q
    return grid


def with_nan(entries: torch.Tensor) -> torch.Tensor:
    """Wrong: NaN goes into the arithmetic."""
    return entries.double()


def with_nan_as_certain(entries: torch.Tensor) -> torch.Tensor:
    """Wrong: nothing of p remains where q is NaN, as if it were 1."""
    return torch.where(entries.isnan(), 1.0, entries).double()


# --- the target's filters ---------------------------------------------------------------------


def without_top_p(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> Any:
    """Wrong: top-p does nothing."""
    del top_p
    return right_probs(logits, temperature, top_k, None, min_p)


def top_p_first(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> Any:
    """Wrong: top-p before min-p and top-k."""
    probs = right_probs(logits, temperature, None, top_p, None)
    return right_probs(probs.log(), torch.ones_like(temperature), top_k, None, min_p)


def filters_before_temperature(
    logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any
) -> Any:
    """Wrong: top-p looks at the logits before they are divided by the temperature."""
    probs = right_probs(logits, torch.ones_like(temperature), top_k, top_p, min_p)
    return right_probs(probs.log(), temperature, None, None, None)


def put_in(monkeypatch: pytest.MonkeyPatch, piece: str, wrong: Any) -> None:
    """Replace a piece of the reference: a rule, by its name, or a function."""
    if piece in reference.RULES:
        monkeypatch.setitem(reference.RULES, piece, wrong)
    else:
        monkeypatch.setattr(reference, piece, wrong)


def put_in_top_p_after_acceptance(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Wrong: drafts are accepted by p before top-p, the last token is drawn after it."""
    unfiltered: list[torch.Tensor] = []

    def probs(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> Any:
        unfiltered[:] = [right_probs(logits, temperature, top_k, None, min_p)]
        return right_probs(logits, temperature, top_k, top_p, min_p)

    def accept(grid: Grid, _: torch.Tensor, q: Any, uniform: torch.Tensor) -> Accepted:
        return right_rules[rule](grid, unfiltered[0], q, uniform)

    put_in(monkeypatch, "target_probs", probs)
    put_in(monkeypatch, rule, accept)
