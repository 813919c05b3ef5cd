"""The Triton kernels against the reference, up to rounding."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from tests.ops.batches import DTYPES, RULES, Arguments, float64, int32
from tests.ops.broken_drafts import assert_in_range, with_any_draft_probs
from tests.ops.cases import FILTERS, parity_cases
from tests.ops.parity import Verdict, assert_right, judge, judge_greedy
from tests.ops.sharp import sharpen
from vllm_ascend_spec.ops import triton_launch, verify_greedy, verify_sample

GREEDY_ARGUMENTS = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small vocabularies up as large ones are: chunks, splits, lanes of several logits."""
    monkeypatch.setattr(triton_launch, "USUAL_SIDE", 16)
    monkeypatch.setattr(triton_launch, "PROGRAMS_PER_CORE", 40)
    monkeypatch.setattr(triton_launch, "FEWEST_LANES", 16)
    monkeypatch.setattr(triton_launch, "MOST_LANES", 16)


def verdict_on(arguments: Arguments) -> Verdict:
    return judge(arguments, verify_sample(**arguments, backend="triton"))


def assert_parity(count: int, seed: int, *, sharp: bool = False, **fixed: Any) -> None:
    cases = parity_cases(count, seed, **fixed)
    if sharp:
        assert_right([verdict_on(sharpen(case, seed)) for case in cases], most_ties=0.02)
    else:
        assert_right([verdict_on(case) for case in cases], most_ties=0.02)


def by_day_and_night(day: int, night: int) -> list[Any]:
    """Return seeds of two sets of cases of one kind."""
    return [day, pytest.param(night, marks=pytest.mark.nightly)]


@pytest.mark.nightly  # by day those below: the same, with numbers beside their thresholds
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_random_cases(rule: str, seed: int) -> None:
    assert_parity(15, seed, max_vocab=129, rule=rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", by_day_and_night(2, 3))
def test_random_cases_beside_their_thresholds(rule: str, seed: int) -> None:
    assert_parity(15, seed, sharp=True, max_vocab=129, rule=rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", by_day_and_night(4, 5))
@pytest.mark.usefixtures("in_small_pieces")
def test_random_cases_in_small_pieces(rule: str, seed: int) -> None:
    assert_parity(15, seed, sharp=True, max_vocab=300, max_requests=4, rule=rule)


def kinds_and_dtypes() -> Iterator[Any]:
    """Yield every pair; by day each kind and each dtype: logits become float32 as they are read."""
    for kind, dtype in itertools.product(("flat", "equal", "coarse", "broken"), DTYPES):
        by_day = kind == "flat" or dtype == torch.float32
        yield pytest.param(kind, dtype, marks=() if by_day else pytest.mark.nightly)


@pytest.mark.parametrize(("kind", "dtype"), list(kinds_and_dtypes()))
@pytest.mark.usefixtures("in_small_pieces")
def test_filters_of_wide_distributions(kind: str, dtype: torch.dtype) -> None:
    """The two largest logits of a lane do not reach far enough here: rows are searched."""
    fixed = {"kind": kind, "dtype": dtype, "filters": FILTERS, "vocab_size": 300}
    assert_parity(3, 7, max_requests=3, max_drafts=2, **fixed)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("drafts", ["one-hot", "near"])
def test_broken_rows_without_filters(rule: str, drafts: str) -> None:
    fixed = {"kind": "broken", "filters": (), "rule": rule, "drafts": drafts}
    assert_parity(12, 17, max_vocab=33, **fixed)


# Whole, by day test_any_draft_probs below, and the contract's own cases. In pieces by day those of
# the block rule, which reads every row that the token rule reads.
@pytest.mark.parametrize("rule", [pytest.param("token", marks=pytest.mark.nightly), "block"])
@pytest.mark.parametrize(
    "pieces", [pytest.param(None, marks=pytest.mark.nightly), "in_small_pieces"]
)
def test_broken_drafts(rule: str, pieces: str | None, request: pytest.FixtureRequest) -> None:
    if pieces:
        request.getfixturevalue(pieces)
    assert_parity(12, 19, drafts="broken", rule=rule, max_vocab=129)


@settings(max_examples=25)
@given(case=with_any_draft_probs())
def test_any_draft_probs(case: Arguments) -> None:
    result = verify_sample(**case, backend="triton")
    assert_in_range(case, result)
    assert_right([judge(case, result)], most_ties=1)


# By day each vocabulary with each of both lists of filters, and each rule with both vocabularies.
@pytest.mark.parametrize(
    ("rule", "vocab", "count", "filters"),
    [
        ("token", 32_001, 2, ()),
        pytest.param("token", 32_001, 2, FILTERS, marks=pytest.mark.nightly),
        pytest.param("token", 151_936, 1, (), marks=pytest.mark.nightly),
        ("token", 151_936, 1, FILTERS),
        pytest.param("block", 32_001, 2, (), marks=pytest.mark.nightly),
        ("block", 32_001, 2, FILTERS),
        ("block", 151_936, 1, ()),
        pytest.param("block", 151_936, 1, FILTERS, marks=pytest.mark.nightly),
    ],
)
def test_full_vocabularies(rule: str, vocab: int, count: int, filters: tuple[str, ...]) -> None:
    fixed = {"vocab_size": vocab, "rule": rule, "filters": filters}
    assert_parity(count, vocab, sharp=True, max_requests=2, max_drafts=2, **fixed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pieces", [None, "in_small_pieces"])
def test_greedy(dtype: torch.dtype, pieces: str | None, request: pytest.FixtureRequest) -> None:
    if pieces:
        request.getfixturevalue(pieces)
    verdicts = []
    for case in parity_cases(15, 11, max_vocab=1003, dtype=dtype):
        arguments = {name: case[name] for name in GREEDY_ARGUMENTS}
        verdicts.append(judge_greedy(arguments, verify_greedy(**arguments, backend="triton")))
    assert_right(verdicts, most_ties=0)


def test_more_drafts_than_a_tile_has_rows() -> None:
    for case in parity_cases(2, 13, max_vocab=33, max_requests=2, max_drafts=70):
        assert_right([verdict_on(case)], most_ties=1)


def test_a_weight_of_nothing_stays_through_a_draft_that_could_not_be() -> None:
    """By the block rule: p = 0, then q = 0; 0 times infinity is no reason to accept."""
    arguments = {
        "logits": torch.tensor([[0.0, float("-inf"), 0.0], [0.0] * 3, [0.0] * 3]),
        "draft_token_ids": int32([1, 2]),
        "cu_num_draft_tokens": int32([2]),
        "max_draft_len": 2,
        "temperature": torch.ones(1),
        "draft_probs": torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]),
        "accept_uniform": float64([0.1, 0.1]),
        "sample_uniform": float64([0.1]),
        "rule": "block",
    }
    tokens, counts = verify_sample(**arguments, backend="triton")
    assert (tokens.tolist(), counts.tolist()) == ([[0, -1, -1]], [1])
