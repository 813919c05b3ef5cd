"""Padding, eager batches and holes, and what steps cost."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.batch_distribution import uniform, weights_of
from vllm_ascend_spec.graphs.padding_stats import WorstPadding, padding_of
from vllm_ascend_spec.graphs.step_cost import StepCost, measured
from vllm_ascend_spec.graphs.tiers import (
    Tier,
    grid_of,
    tiers_of_drafts,
    tiers_of_schedule,
)


def test_figures_by_hand() -> None:
    """K=1, batches of 1 to 4, graphs for 1 and 3: 2 is padded by one request, 4 is eager."""
    tiers = tiers_of_drafts(4, [1])
    weights = weights_of(uniform(4), tiers, 4)
    found = padding_of(tiers, {1: (2, 6)}, weights, StepCost(eager_factor=3))
    assert found.expected_padding == pytest.approx(2 / 20)
    assert found.eager_share == 0.25
    assert found.eager_cost == pytest.approx(2 * 8 / 20)
    assert found.expected_waste == pytest.approx(18 / 20)
    assert found.eager == {1: (4,)}
    assert found.worst == WorstPadding(1, 2, 6)
    assert found.worst.padding == 0.5


def test_no_graphs_at_all() -> None:
    tiers = tiers_of_drafts(2, [1])
    found = padding_of(tiers, {}, weights_of(uniform(2), tiers, 2), StepCost())
    assert (found.expected_padding, found.eager_share, found.worst) == (0, 1, None)


def test_times_between_below_and_above_what_was_measured() -> None:
    work = measured([(64, 20.0), (32, 12.0), (48, 11.0)])
    # 48 tokens were measured faster than 32.
    assert work.times == ((32, 12.0), (48, 12.0), (64, 20.0))
    assert [work.of_graph(n) for n in (1, 32, 40, 48, 56, 64, 128)] == [12, 12, 12, 12, 16, 20, 40]
    assert work.of_eager(64) == 40
    assert work.unit == "ms"
    assert (StepCost().of_graph(7), StepCost().unit) == (7, "tokens")


@pytest.mark.parametrize(
    "times", [[], [(0, 1.0)], [(4, 0.0)], [(4, float("nan"))], [(4, 1), (4, 2)]]
)
def test_times_that_are_none_are_refused(times) -> None:
    with pytest.raises(ConfigError, match="step_times"):
        measured(times)


@pytest.mark.parametrize("factor", [0.5, float("nan"), float("inf")])
def test_an_eager_step_is_no_cheaper_than_a_graph(factor: float) -> None:
    with pytest.raises(ConfigError, match="eager_factor"):
        StepCost(factor)


def test_tiers_of_a_schedule() -> None:
    tiers = tiers_of_schedule(64, [[1, 8, 3], [9, 16, 1], [17, 32, 3]])
    assert tiers == (Tier(1, ((9, 16),)), Tier(3, ((1, 8), (17, 64))))
    # Rows beyond max_num_seqs have no batches.
    assert tiers_of_schedule(8, [[1, 8, 3], [9, 16, 1]]) == (Tier(3, ((1, 8),)),)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [[2, 8, 3]],
        [[1, 8, 3], [10, 16, 1]],
        [[1, 8]],
        [[1, 8, -1]],
        [[4, 1, 3]],
        [[1, 8, True]],
    ],
)
def test_rows_that_are_no_schedule_are_refused(rows) -> None:
    with pytest.raises(ConfigError, match="tiers"):
        tiers_of_schedule(64, rows)


def test_a_k_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="nearest: 1,3"):
        tiers_of_drafts(8, [3, 1, 3])


def test_grids() -> None:
    tier = Tier(2, ((1, 6),))
    assert grid_of(tier, 6).count == 6
    assert grid_of(tier, 6, divisor=4).top == 4
    # A narrow tier takes a graph that is wider than its batches.
    narrow = grid_of(Tier(2, ((1, 3),)), 64, divisor=4)
    assert (narrow.stride, narrow.unit, narrow.count) == (12, 4, 1)
    assert grid_of(tier, 6, max_tokens=10).top == 3
    assert grid_of(tier, 2, divisor=4).count == 0
