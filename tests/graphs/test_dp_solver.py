"""The dynamic programme against one that looks at every candidate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_ascend_spec.graphs import dp_solver


def every_candidate(load: np.ndarray, work: np.ndarray, most: int) -> list[float]:
    """Return the least work for 1, 2, … graphs; load and work are [candidates] float64."""
    count = len(load)
    served = np.concatenate(([0.0], np.cumsum(load)))
    best, totals = [0.0, *[np.inf] * count], []
    for _ in range(most):
        best = [
            min((best[i] + (served[j] - served[i]) * work[j - 1] for i in range(j)), default=np.inf)
            for j in range(count + 1)
        ]
        totals.append(best[-1])
    return totals


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Return load and work, [candidates] float64 each; with ties."""
    count = draw(st.integers(1, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    load = random.integers(0, draw(st.sampled_from([2, 10, 1000])), count).astype(float)
    rises = random.integers(0, draw(st.sampled_from([2, 5, 100])), count)
    return load, 1.0 + np.cumsum(rises)


@settings(max_examples=300, deadline=None)
@given(problems(), st.integers(1, 8), st.sampled_from([1, 2, 5, dp_solver.BLOCK]))
def test_nothing_is_missed_by_looking_between_rows(problem, most: int, block: int) -> None:
    load, work = problem
    rest = np.full(len(load) + 1, np.inf)
    rest[-1] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dp_solver, "BLOCK", block)
        ladder = dp_solver.solve(load, work, rest, most)
    most = min(most, len(load))
    assert ladder.work[1:] == pytest.approx(every_candidate(load, work, most), rel=1e-12)
    assert ladder.work[0] == np.inf
    for graphs in range(1, most + 1):
        chosen = ladder.chosen(graphs)
        assert len(chosen) == graphs
        assert chosen == sorted(set(chosen))
        assert chosen[-1] == len(load) - 1
        serving = np.array(chosen)[np.searchsorted(chosen, np.arange(len(load)))]
        assert load @ work[serving] == pytest.approx(ladder.work[graphs], rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=9),
    st.lists(st.floats(0, 100), min_size=1, max_size=9),
    st.integers(0, 20),
)
def test_graphs_are_divided_between_two_tiers_in_the_best_way(first, second, most: int) -> None:
    least, taken = dp_solver.join(np.array(first), np.array(second), most)
    for graphs in range(min(len(first) + len(second) - 2, most) + 1):
        ways = {
            own: first[graphs - own] + second[own]
            for own in range(len(second))
            if 0 <= graphs - own < len(first)
        }
        assert least[graphs] == min(ways.values())
        assert ways[int(taken[graphs])] == least[graphs]
