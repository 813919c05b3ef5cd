"""What is told of a step travels in a text, and comes out again."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.control.told import COSTLY, FIXED, REJECTED, SCHEDULED, Told, Watched
from vllm_ascend_spec.graphs.step import REASONS, GraphStep
from vllm_ascend_spec.step_text import Times, split

FULL = Told(2, "pays", "eagle", {3: (4, 7), 1: (1, 0)}, Watched(True, 1, True, 2))


@pytest.mark.parametrize("graph", ["", "FULL", "NONE, K=3: wider than the largest graph"])
@pytest.mark.parametrize(
    "told", [FULL, Told(0, "does not pay"), Told(1, FIXED, "ngram", watched=Watched(pauses=1))]
)
def test_it_comes_back(graph: str, told: Told) -> None:
    text, parts = split(told.behind(graph))
    assert (text, Told.of(parts)) == (graph, told)
    assert Times.of(parts) is None


def test_times_come_back_beside_it() -> None:
    times = Times(1234, 56, 0)
    text, parts = split(FULL.behind(times.behind("FULL, K=3")))
    assert (text, Told.of(parts), Times.of(parts)) == ("FULL, K=3", FULL, times)


@pytest.mark.parametrize("reason", [FIXED, SCHEDULED, REJECTED, COSTLY])
@pytest.mark.parametrize(
    "before", ["", "FULL", *(str(GraphStep("NONE", 3, why)) for why in REASONS)]
)
def test_reasons_come_back(before: str, reason: str) -> None:
    text, parts = split(Told(12, reason).behind(before))
    assert (text, Told.of(parts)) == (before, Told(12, reason))


@pytest.mark.parametrize("text", ["FULL", "", "a | b", "FULL, K=3", "FULL | K: 3"])
def test_what_is_not_ours_is_left(text: str) -> None:
    assert split(text) == (text, {})


@pytest.mark.parametrize("text", ["", "NONE | K=: x", "FULL | K=3", "FULL | M=eagle"])
def test_nothing_is_told_where_a_length_is_missing(text: str) -> None:
    assert Told.of(split(text)[1]) is None
