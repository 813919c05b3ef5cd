"""The judgement on answers; needs no NPU."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.npu.answers import TIE, compare


def answer(*tokens: int, second: int = 99, gap: float = 1.0) -> dict[str, Any]:
    """Return an answer in which ``second`` was less likely by ``gap`` at every place."""
    return {
        "tokens": list(tokens),
        "logprobs": [{str(token): -0.5, str(second): -0.5 - gap} for token in tokens],
    }


def test_equal_answers_are_right() -> None:
    comparison = compare(answer(1, 2, 3), answer(1, 2, 3))
    assert (comparison.same, comparison.gap, comparison.is_right) == (3, None, True)


@pytest.mark.parametrize(("gap", "is_right"), [(0.0, True), (TIE / 2, True), (2 * TIE, False)])
def test_answers_may_part_at_a_tie_only(gap: float, is_right: bool) -> None:
    comparison = compare(answer(1, 99, 7, 8), answer(1, 2, 3, 4, gap=gap))
    assert comparison.same == 1
    assert comparison.gap == pytest.approx(gap)
    assert comparison.is_right is is_right


def test_a_token_out_of_nowhere_is_wrong() -> None:
    comparison = compare(answer(1, 55), answer(1, 2, gap=0.0))
    assert comparison.gap == math.inf
    assert not comparison.is_right


@pytest.mark.parametrize("tokens", [(1, 2), (1, 2, 3, 4)])
def test_another_length_is_wrong(tokens: tuple[int, ...]) -> None:
    assert not compare(answer(*tokens), answer(1, 2, 3)).is_right
