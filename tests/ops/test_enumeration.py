"""Proof that the token rule is lossless: the output's exact distribution is the target's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.ops.enumeration import (
    Branches,
    Case,
    find_steps,
    output_distribution,
    steps_explain,
    target_joint,
    total_variation,
)
from tests.ops.oracle import Sampling
from vllm_ascend_spec.ops.layout import Grid
from vllm_ascend_spec.ops.verify_sample import reference

PLAIN = Sampling()
FILTERED = (
    Sampling(temperature=0.6),
    Sampling(temperature=1.7),
    Sampling(top_k=2),
    Sampling(top_p=0.7),
    Sampling(min_p=0.3),
    Sampling(temperature=1.3, top_k=4, top_p=0.8, min_p=0.05),
)
SIZES = [(2, 1), (2, 2), (2, 3), (3, 3), (4, 2), (5, 3), (6, 1), (6, 2)]

SAMPLED = [Case(v, k, sampled=True, seed=v + k) for v, k in SIZES]
CERTAIN = [Case(v, k, sampled=False, seed=v + k) for v, k in [*SIZES, (6, 3)]]
WITH_FILTERS = [
    Case(4, 3, sampled=sampled, sampling=sampling, seed=7)
    for sampling in FILTERED
    for sampled in (False, True)
]
WITHOUT_DRAFT = [
    Case(4, 3, sampled=sampled, seed=3, without_draft=position)
    for position in range(3)
    for sampled in (False, True)
]
EXTREME = [
    Case(4, 2, sampled=True, seed=1, divergence=0.0),
    Case(4, 2, sampled=True, seed=1, divergence=40.0),
    Case(4, 2, sampled=True, seed=1, sampling=Sampling(temperature=0.05)),
]


def distance_to_target(case: Case) -> float:
    """Return the total variation between the output's and the target's distribution."""
    branches = Branches.of(case)
    output = output_distribution(branches, find_steps(branches))
    assert math.isclose(sum(output.values()), 1.0, abs_tol=1e-9)
    return total_variation(output, target_joint(case))


def describe(case: Case) -> str:
    kind = "sampled" if case.sampled else "certain"
    changed = {k: v for k, v in vars(case.sampling).items() if v != getattr(PLAIN, k)}
    extra = "" if case.without_draft is None else f"-no draft {case.without_draft}"
    return f"V{case.vocab_size}-K{case.num_drafts}-{kind}-{changed or 'plain'}{extra}"


@pytest.mark.parametrize(
    "case", [*SAMPLED, *CERTAIN, *WITH_FILTERS, *WITHOUT_DRAFT, *EXTREME], ids=describe
)
def test_output_has_the_targets_distribution(case: Case) -> None:
    assert distance_to_target(case) < 1e-6


@pytest.mark.parametrize("case", [*SAMPLED[:4], *CERTAIN[:4], *WITH_FILTERS[-2:]], ids=describe)
def test_breakpoints_describe_the_whole_op(case: Case) -> None:
    branches = Branches.of(case)
    assert steps_explain(branches, find_steps(branches))


def recover_from_target(
    grid: Grid, probs: torch.Tensor, draft_probs: object, num_accepted: torch.Tensor, uniform: Any
) -> torch.Tensor:
    """Wrong: the correction is drawn from p, not from the residual."""
    del draft_probs
    return reference.invert_cdf(probs[grid.rows.gather(1, num_accepted)[:, 0]], uniform)


right_final_token = reference._final_token
right_accepted = reference.accepted_by_token_rule


def recover_without_draft_only(
    grid: Grid, probs: torch.Tensor, draft_probs: Any, num_accepted: torch.Tensor, uniform: Any
) -> torch.Tensor:
    """Wrong for sampled drafts: p without the rejected token, as if the draft had been certain."""
    del draft_probs
    return right_final_token(grid, probs, None, num_accepted, uniform)


def recover_from_the_next_draft(
    grid: Grid, probs: torch.Tensor, draft_probs: Any, num_accepted: torch.Tensor, uniform: Any
) -> torch.Tensor:
    """Wrong: the residual takes q from another draft's row."""
    return right_final_token(grid, probs, draft_probs.roll(1, 0), num_accepted, uniform)


def accept_ignoring_draft(
    grid: Grid, probs: torch.Tensor, draft_probs: Any, uniform: torch.Tensor
) -> torch.Tensor:
    """Wrong for sampled drafts: u < p(x), without q."""
    del draft_probs
    return right_accepted(grid, probs, None, uniform)


def accept_too_much(
    grid: Grid, probs: torch.Tensor, draft_probs: Any, uniform: torch.Tensor
) -> torch.Tensor:
    """Wrong: one in twenty acceptances too many."""
    return right_accepted(grid, probs, draft_probs, uniform * 0.95)


@pytest.mark.parametrize(
    ("case", "piece", "wrong"),
    [
        (CERTAIN[3], "_final_token", recover_from_target),
        (SAMPLED[3], "_final_token", recover_from_target),
        (SAMPLED[3], "_final_token", recover_without_draft_only),
        (SAMPLED[3], "_final_token", recover_from_the_next_draft),
        (SAMPLED[3], "accepted_by_token_rule", accept_ignoring_draft),
        (SAMPLED[3], "accepted_by_token_rule", accept_too_much),
        (CERTAIN[3], "accepted_by_token_rule", accept_too_much),
    ],
)
def test_wrong_rules_are_found_out(
    monkeypatch: pytest.MonkeyPatch, case: Case, piece: str, wrong: Any
) -> None:
    monkeypatch.setattr(reference, piece, wrong)
    assert distance_to_target(case) > 1e-3


def test_wrong_parameters_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference.target_probs

    def without_top_p(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> Any:
        del top_p
        return right(logits, temperature, top_k, None, min_p)

    monkeypatch.setattr(reference, "target_probs", without_top_p)
    assert distance_to_target(Case(4, 3, sampled=True, sampling=Sampling(top_p=0.7))) > 1e-3
