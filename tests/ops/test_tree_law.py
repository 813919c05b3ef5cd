"""Texts that ``verify_tree`` makes have the target's law exactly; those of wrong rules have not."""

from __future__ import annotations

import pytest

from tests.ops.oracle import Sampling
from tests.ops.tree_law import TOLERANCE, Case, distance, texts_of_op, texts_of_steps
from tests.ops.wrong_trees import (
    Children,
    by_ratios,
    depths_by_row,
    in_draw_order,
    re_ranked,
    top_two,
)
from vllm_ascend_spec.ops.verify_tree import reference

# Two children of each node, two levels.
BINARY = (-1, -1, 0, 0, 1, 1)
# What a wrong rule is off by; the least of those below is 0.0089.
NOTICED = 1e-3
CASES = [
    Case(2, BINARY, 4),
    Case(2, (-1, 0, 1, 2, 3, 4), 4, seed=1),
    Case(3, (-1, 0, -1, -1, 0, 1), 3),
    Case(3, BINARY, 3, Sampling(temperature=0.6, top_k=2), seed=1),
    Case(4, (-1, -1, -1, 0, 0), 3, Sampling(top_p=0.7), seed=2),
    Case(5, (-1, -1, -1, -1), 2),
    Case(5, (), 2, seed=1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_texts_have_the_targets_law(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert distance(texts_of_op(case, monkeypatch), case) < TOLERANCE


@pytest.mark.parametrize("case", [Case(2, BINARY, 4), Case(3, (-1, -1, -1), 3)], ids=str)
def test_noise_of_the_rows_index_would_be_noticed(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions by index give two tokens of a text the same noise."""
    monkeypatch.setattr(reference, "depths", depths_by_row)
    assert distance(texts_of_op(case, monkeypatch), case) > NOTICED


@pytest.mark.parametrize("children", [re_ranked, top_two])
@pytest.mark.parametrize("vocab_size", [3, 4])
def test_other_ways_to_verify_two_children_would_be_noticed(
    children: Children, vocab_size: int
) -> None:
    case = Case(vocab_size, BINARY, 3)
    assert distance(texts_of_steps(case, by_ratios(children)), case) > NOTICED


@pytest.mark.parametrize("vocab_size", [2, 3, 4])
def test_children_that_are_drawn_are_right_in_the_order_of_the_draw(vocab_size: int) -> None:
    """So it is the order, and the draw, that the rules above have wrong."""
    case = Case(vocab_size, BINARY, 3)
    assert distance(texts_of_steps(case, by_ratios(in_draw_order)), case) < TOLERANCE
