"""Which side drafts for a request, and what is learnt from it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vllm_ascend_spec.methods.hybrid.estimate import Drafts
from vllm_ascend_spec.methods.hybrid.request_state import (
    Estimators,
    RequestState,
    by_model,
    by_trees,
)

CERTAIN = Drafts([1, 2, 3], [4] * 3, [1.0] * 3)


def account(*, suffix: bool = True) -> RequestState:
    made = RequestState(Estimators(), last=(CERTAIN, by_model([7, 8, 9])), by_suffix=suffix)
    made.num_tokens = 10
    return made


def seen(made: RequestState) -> tuple[float, float]:
    """Return how many drafts of either side were counted."""
    return round(made.suffix.expected, 1), round(made.model.expected, 1)


def test_the_trees_score_is_kept_as_chances_of_each_draft() -> None:
    found = SimpleNamespace(token_ids=[5, 6, 7], probs=[1.0, 0.5, 0.25], match_len=5)
    drafts = by_trees(found)
    assert list(drafts.tokens) == [5, 6, 7]
    assert drafts.chances == pytest.approx([1.0, 0.5, 0.5])
    # Matches of four to seven tokens, first and later drafts.
    assert drafts.kinds == [(3, True), (3, False), (3, False)]


def test_more_promised_drafts_are_preferred() -> None:
    made = account()
    assert made.prefers_suffix(CERTAIN, 3)
    assert not made.prefers_suffix(Drafts([1], [1], [1.0]), 3)
    assert made.prefers_suffix(Drafts([1], [1], [1.0]), 1)
    # A tie is the model's.
    model = by_model([0] * 3)
    assert not made.prefers_suffix(Drafts(model.tokens, model.kinds, model.chances), 3)


def test_a_model_that_is_right_wins_over_a_tree_that_is_wrong() -> None:
    made = account()
    for _ in range(20):
        made.num_tokens, made.by_suffix = 10, False
        made.learn(10, [7, 8, 9, 5], draws=False)
    assert not made.prefers_suffix(CERTAIN, 3)


def test_drafts_that_were_not_verified_are_compared_too() -> None:
    made = account(suffix=True)
    made.learn(10, [1, 2, 5], draws=False)
    assert seen(made) == (2.9, 0.7)
    made = account(suffix=False)
    made.learn(10, [7, 5], draws=False)
    assert seen(made) == (1.0, 1.4)


def test_sampled_drafts_tell_something_only_where_they_were_verified() -> None:
    made = account(suffix=True)
    made.learn(10, [1, 5], draws=True)
    assert seen(made) == (2.0, 0.0)
    made = account(suffix=False)
    made.learn(10, [7, 5], draws=True)
    assert seen(made) == (1.0, 1.4)


def test_drafts_for_another_place_are_not_compared() -> None:
    made = account()
    made.learn(11, [1, 2, 3], draws=False)
    assert seen(made) == (0.0, 0.0)
