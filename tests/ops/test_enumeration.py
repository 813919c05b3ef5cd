"""Proof that both rules are lossless: the output's exact distribution is the target's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.ops import wrong_rules as wrong
from tests.ops.batches import RULES, SAMPLE_BACKENDS
from tests.ops.enumeration import (
    Branches,
    Case,
    distance_to_target,
    find_steps,
    steps_explain,
    tolerance,
)
from tests.ops.oracle import Sampling

PLAIN = Sampling()
FILTERED = (
    Sampling(temperature=0.6),
    Sampling(temperature=1.7),
    Sampling(top_k=2),
    Sampling(top_p=0.7),
    Sampling(min_p=0.3),
    Sampling(temperature=1.3, top_k=3, top_p=0.8, min_p=0.05),
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
WITH_NAN = [
    Case(v, 3, sampled=True, seed=seed, nan=nan, nan_after=after)
    for v, seed in ((3, 6), (4, 3))
    for nan in ("row", "never drafted", "always drafted")
    for after in (None, 0, 1)
]
CASES = [*SAMPLED, *CERTAIN, *WITH_FILTERS, *WITHOUT_DRAFT, *EXTREME, *WITH_NAN]


def describe(case: Case) -> str:
    kind = "sampled" if case.sampled else "certain"
    changed = {k: v for k, v in vars(case.sampling).items() if v != getattr(PLAIN, k)}
    extra = "" if case.without_draft is None else f"-no draft {case.without_draft}"
    if case.nan:
        where = "" if case.nan_after is None else f" after {case.nan_after}"
        extra += f"-NaN {case.nan}{where}"
    divergence = "" if case.divergence == Case.divergence else f"-divergence {case.divergence}"
    size = f"V{case.vocab_size}-K{case.num_drafts}"
    return f"{size}-{kind}-{changed or 'plain'}{extra}{divergence}"


@pytest.fixture(scope="module", params=SAMPLE_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES, ids=describe)
def test_output_has_the_targets_distribution(backend: str, case: Case, rule: str) -> None:
    branches = Branches.of(replace(case, rule=rule), backend)
    steps = find_steps(branches)
    assert steps_explain(branches, steps)
    assert distance_to_target(branches, steps) < tolerance(backend)


def distance(case: Case) -> float:
    """Return the distance that the reference's output, as it is now, has from the target."""
    branches = Branches.of(case)
    return distance_to_target(branches, find_steps(branches))


SAMPLED_3 = Case(3, 3, sampled=True, seed=6)
SAMPLED_4 = Case(4, 3, sampled=True, seed=3)
CERTAIN_3 = Case(3, 3, sampled=False, seed=6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        (CERTAIN_3, wrong.recover_from_target),
        (SAMPLED_3, wrong.recover_from_target),
        (SAMPLED_3, wrong.recover_without_draft_only),
        (SAMPLED_3, wrong.recover_from_the_next_draft),
    ],
)
def test_wrong_corrections_are_found_out(
    monkeypatch: pytest.MonkeyPatch, case: Case, mistake: Any, rule: str
) -> None:
    wrong.put_in(monkeypatch, "_final_token", mistake)
    assert distance(replace(case, rule=rule)) > 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        (SAMPLED_3, wrong.ignoring_the_draft),
        (SAMPLED_3, wrong.too_often),
        (CERTAIN_3, wrong.too_often),
    ],
)
def test_wrong_acceptance_is_found_out(
    monkeypatch: pytest.MonkeyPatch, case: Case, mistake: Any, rule: str
) -> None:
    wrong.put_in(monkeypatch, rule, mistake(rule))
    assert distance(replace(case, rule=rule)) > 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("nan", ["row", "never drafted", "always drafted"])
@pytest.mark.parametrize("after", [None, 0])
def test_nan_as_it_was_in_0_3_0_is_found_out(
    monkeypatch: pytest.MonkeyPatch, nan: str, after: int | None, rule: str
) -> None:
    wrong.put_in(monkeypatch, "_without_nan_drafts", wrong.with_nan_drafts)
    wrong.put_in(monkeypatch, "_as_probs", wrong.with_nan)
    assert distance(replace(SAMPLED_3, rule=rule, nan=nan, nan_after=after)) > 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("nan", ["row", "always drafted"])
@pytest.mark.parametrize("after", [None, 0])
def test_accepting_drafts_of_nan_is_found_out(
    monkeypatch: pytest.MonkeyPatch, nan: str, after: int | None, rule: str
) -> None:
    wrong.put_in(monkeypatch, "_without_nan_drafts", wrong.with_nan_drafts)
    assert distance(replace(SAMPLED_3, rule=rule, nan=nan, nan_after=after)) > 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("after", [None, 0])
def test_no_residual_where_q_is_nan_is_found_out(
    monkeypatch: pytest.MonkeyPatch, after: int | None, rule: str
) -> None:
    wrong.put_in(monkeypatch, "_as_probs", wrong.with_nan_as_certain)
    case = replace(SAMPLED_3, rule=rule, nan="never drafted", nan_after=after)
    assert distance(case) > 1e-3


@pytest.mark.parametrize(
    ("case", "piece", "mistake"),
    [
        (SAMPLED_4, "block", wrong.by_products_of_uniforms),
        (SAMPLED_4, "block", wrong.by_products_with_token_residual),
        (SAMPLED_4, "block", wrong.by_weights_alone),
        (SAMPLED_4, "block", wrong.with_unlimited_weights),
        (SAMPLED_4, "_final_token", wrong.recover_by_the_token_rule),
        (CERTAIN_3, "block", wrong.by_products_of_uniforms),
        (CERTAIN_3, "block", wrong.by_products_with_token_residual),
        (CERTAIN_3, "block", wrong.by_weights_alone),
    ],
)
def test_wrong_block_rules_are_found_out(
    monkeypatch: pytest.MonkeyPatch, case: Case, piece: str, mistake: Any
) -> None:
    wrong.put_in(monkeypatch, piece, mistake)
    assert distance(replace(case, rule="block")) > 1e-3


@pytest.mark.parametrize("case", [SAMPLED_4, CERTAIN_3])
def test_rule_of_another_form_is_found_out(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    wrong.put_in(monkeypatch, "block", wrong.up_to_the_first_refused)
    branches = Branches.of(replace(case, rule="block"))
    assert not steps_explain(branches, find_steps(branches))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(
    ("seed", "sampling", "mistake"),
    [
        (0, Sampling(top_p=0.7), wrong.without_top_p),
        (4, Sampling(top_k=2, top_p=0.5), wrong.top_p_first),
        (5, Sampling(min_p=0.3, top_p=0.6), wrong.top_p_first),
        (4, Sampling(temperature=1.7, top_p=0.8), wrong.filters_before_temperature),
    ],
)
def test_wrong_filters_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    sampling: Sampling,
    mistake: Any,
    sampled: bool,
    rule: str,
) -> None:
    wrong.put_in(monkeypatch, "target_probs", mistake)
    assert distance(Case(4, 2, sampled=sampled, sampling=sampling, seed=seed, rule=rule)) > 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampled", [False, True])
def test_top_p_after_acceptance_is_found_out(
    monkeypatch: pytest.MonkeyPatch, sampled: bool, rule: str
) -> None:
    wrong.put_in_top_p_after_acceptance(monkeypatch, rule)
    sampling = Sampling(top_p=0.6)
    assert distance(Case(4, 2, sampled=sampled, sampling=sampling, seed=4, rule=rule)) > 1e-3
