"""Plans are valid, cover what can be covered, and no other choice of as many graphs costs less."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs import baselines
from tests.graphs.cases import CLOSE, Case, cases, coverings, everything
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import batch_distribution as loads
from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.budget import Budget
from vllm_ascend_spec.graphs.padding_stats import PaddingStats, padding_of
from vllm_ascend_spec.graphs.planner import CapturePlan, plan
from vllm_ascend_spec.graphs.step_cost import StepCost
from vllm_ascend_spec.graphs.tiers import (
    Tier,
    grid_of,
    stride_of,
    tiers_of_drafts,
    tiers_of_schedule,
)

MANY = settings(max_examples=2000, deadline=None)
BRUTE_FORCE = settings(max_examples=150, deadline=None)


def plan_of(case: Case, **details: object) -> CapturePlan:
    engine = case.engine
    return plan(
        engine.max_num_seqs,
        engine.tiers,
        load=case.load,
        divisor=engine.divisor,
        work=case.work,
        **details,
    )


@MANY
@given(
    cases(48), st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 400))
)
def test_plans_are_valid(case: Case, graphs: int | None, max_tokens: int | None) -> None:
    if max_tokens is not None:
        max_tokens = max(max_tokens, case.smallest())
    planned = plan_of(case, budget=Budget(graphs=graphs, max_tokens=max_tokens))
    engine = case.engine
    assert graphs is None or planned.graphs <= graphs
    assert list(planned.sizes) == sorted(set(planned.sizes))
    without = 0
    for tier in engine.tiers:
        sizes, top = planned.sizes_by_k[tier.k], case.grids(max_tokens)[tier.k]
        assert list(sizes) == sorted(set(sizes))
        assert all(size % tier.query_len == size % engine.divisor == 0 for size in sizes)
        assert all(size <= engine.max_num_seqs * tier.query_len for size in sizes)
        assert max_tokens is None or all(size <= max_tokens for size in sizes)
        assert not sizes or sizes[-1] == top[-1]
        assert all(any(n * tier.query_len <= size for n in tier.batches()) for size in sizes)
        without += bool(top) and not sizes
        reached = sizes[-1] // tier.query_len if sizes else 0
        assert planned.figures.eager[tier.k] == tuple(n for n in tier.batches() if n > reached)
    # A tier that could have a graph has none only where the budget is for fewer than there are.
    possible = sum(bool(grid) for grid in case.grids(max_tokens).values())
    assert without == max(0, possible - (possible if graphs is None else graphs))
    assert len(planned.notes) == sum(bool(row) for row in planned.figures.eager.values())
    assert planned.figures == case.figures(planned.sizes_by_k)


@MANY
@given(cases(48))
def test_no_stock_ladder_and_no_even_grid_of_as_many_graphs_costs_less(case: Case) -> None:
    engine = case.engine
    grids = {t.k: grid_of(t, engine.max_num_seqs, engine.divisor) for t in engine.tiers}
    stock = [stock_rules.vllm(engine).sizes_by_k, stock_rules.vllm_ascend(engine).sizes_by_k]
    graphs = max(sum(map(len, sizes.values())) for sizes in stock) or 4
    others = [
        *stock,
        baselines.even(grids, graphs),
        *(baselines.thin(s, max(1, graphs // 2)) for s in stock),
    ]
    # Many are the same, and more have the same number of graphs.
    fittings = {
        # What V2 would make of a list for several K need not be a multiple of the ranks.
        tuple((k, tuple(s for s in row if s % engine.divisor == 0)) for k, row in sizes.items())
        for sizes in others
    }
    plans: dict[int, tuple[PaddingStats, PaddingStats]] = {}
    for fitting in map(dict, fittings):
        count = sum(map(len, fitting.values()))
        if not count:
            continue
        theirs = case.figures(fitting)
        if count not in plans:
            budget = Budget(graphs=count)
            plans[count] = (
                plan_of(case, budget=budget, cover=False).figures,
                plan_of(case, budget=budget).figures,
            )
        free, ours = plans[count]
        # With the same freedom to leave batches eager: never dearer.
        assert free.expected_waste <= theirs.expected_waste + CLOSE
        # Bound to cover: never more eager batches, and not dearer where theirs covers as much.
        assert ours.eager_share <= theirs.eager_share + CLOSE
        if {k: row for k, row in theirs.eager.items() if row} == {
            k: row for k, row in ours.eager.items() if row
        }:
            assert ours.expected_padding <= theirs.expected_padding + CLOSE


@BRUTE_FORCE
@given(cases(12).filter(lambda case: len(case.engine.tiers) == 1), st.integers(1, 12))
def test_one_tier_is_optimal(case: Case, graphs: int) -> None:
    least = min(case.figures(sizes).expected_waste for sizes in coverings(case, graphs))
    ours = plan_of(case, budget=Budget(graphs=graphs)).figures.expected_waste
    assert ours == pytest.approx(least, abs=CLOSE)


@BRUTE_FORCE
@given(cases(6), st.integers(3, 8))
def test_several_tiers_are_optimal(case: Case, graphs: int) -> None:
    least = min(case.figures(sizes).expected_waste for sizes in coverings(case, graphs))
    ours = plan_of(case, budget=Budget(graphs=graphs)).figures.expected_waste
    assert ours == pytest.approx(least, abs=CLOSE)


@BRUTE_FORCE
@given(cases(6), st.integers(1, 5))
def test_leaving_batches_eager_is_optimal_too(case: Case, graphs: int) -> None:
    least = min(case.figures(sizes).expected_waste for sizes in everything(case, graphs))
    ours = plan_of(case, budget=Budget(graphs=graphs), cover=False).figures.expected_waste
    assert ours == pytest.approx(least, abs=CLOSE)


def test_brute_force_tells_an_even_grid_from_the_optimum() -> None:
    """The comparison above can fail."""
    case = Case(stock_rules.CaptureInputs(12, tiers_of_drafts(12, [3])), loads.zipf(12), StepCost())
    even = case.figures(baselines.even({3: grid_of(case.engine.tiers[0], 12)}, 4)).expected_waste
    assert even > min(case.figures(sizes).expected_waste for sizes in coverings(case, 4)) + 0.01


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
def test_every_batch_replays_where_each_has_its_graph(k: int) -> None:
    planned = plan(256, k, budget=Budget(graphs=256))
    assert planned.covers_all
    assert planned.sizes == tuple((k + 1) * n for n in range(1, 257))
    assert planned.figures.expected_padding == 0
    assert planned.figures.worst is None


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("load", [loads.zipf(256), loads.normal(256, 40, 12)], ids=lambda x: x.name)
def test_twelve_graphs_waste_at_most_half_of_what_the_stock_rule_does(k, load) -> None:
    """As many by the stock rule's option for fewer graphs, and by an even grid that covers all."""
    tiers = tiers_of_drafts(256, [k])
    weights = loads.weights_of(load, tiers, 256)
    ours = plan(256, tiers, load=load, budget=Budget(graphs=12))
    assert ours.covers_all
    assert ours.graphs == 12
    for rule in (stock_rules.vllm, stock_rules.vllm_ascend):
        stock = baselines.cut(rule(stock_rules.CaptureInputs(256, tiers)).sizes_by_k, 12)
        theirs = padding_of(tiers, stock, weights, StepCost())
        assert ours.figures.expected_waste <= 0.5 * theirs.expected_waste
    even = padding_of(tiers, baselines.even({k: grid_of(tiers[0], 256)}, 12), weights, StepCost())
    assert ours.figures.expected_padding <= 0.5 * even.expected_padding


def test_known_figures() -> None:
    """As first worked out apart from this code."""
    normal = plan(256, 3, load=loads.normal(256, 40, 12), budget=Budget(graphs=6))
    assert normal.figures.expected_padding == pytest.approx(0.135, abs=5e-4)
    zipf = plan(256, 3, load=loads.zipf(256), budget=Budget(graphs=12))
    assert zipf.figures.expected_padding == pytest.approx(0.153, abs=5e-4)


def test_a_thousand_requests_and_64_graphs_take_little_memory() -> None:
    load = loads.zipf(1024)
    plan(64, 3, budget=Budget(graphs=8))  # what is imported is not counted
    tracemalloc.start()
    try:
        planned = plan(1024, 3, load=load, budget=Budget(graphs=64))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert planned.graphs == 64
    assert peak <= 100e6


def test_fewer_graphs_are_taken_where_more_win_nothing() -> None:
    load = loads.BatchDistribution("two", tuple(float(n in (3, 9)) for n in range(1, 33)))
    planned = plan(32, 1, load=load, budget=Budget(graphs=20))
    assert planned.sizes == (6, 18, 64)
    assert planned.figures.expected_padding == 0


def test_too_few_graphs_go_to_the_tiers_that_decode_most() -> None:
    tiers = tiers_of_schedule(64, [[1, 4, 7], [5, 48, 3], [49, 64, 1]])
    planned = plan(64, tiers, budget=Budget(graphs=2))
    assert planned.sizes_by_k == {1: (128,), 3: (192,), 7: ()}
    assert planned.eager_batches == (1, 2, 3, 4)
    (note,) = planned.notes
    assert "K=7: batches of 1 requests and more" in note
    assert "graphs=2" in note


def test_tiers_share_no_graph() -> None:
    planned = plan(6, [3, 2], budget=Budget(graphs=11))
    assert 12 in planned.sizes_by_k[2]
    assert 12 in planned.sizes_by_k[3]
    assert planned.sizes.count(12) == 1
    assert planned.graphs == 11


def test_a_limit_on_tokens_leaves_wide_batches_eager_and_says_so() -> None:
    planned = plan(256, 3, budget=Budget(max_tokens=512))
    assert planned.eager_batches == tuple(range(129, 257))
    assert "max_tokens=512" in planned.notes[0]


def test_a_stride_that_does_not_divide_leaves_the_widest_eager_and_names_the_remedy() -> None:
    planned = plan(6, 2, divisor=4)
    assert stride_of(2, 4) == 12
    assert planned.sizes == (12,)
    assert planned.eager_batches == (5, 6)
    assert "max_num_seqs=8 covers them" in planned.notes[0]
    assert plan(8, 2, divisor=4).covers_all


def test_a_tier_that_no_graph_can_serve_has_none() -> None:
    """Graphs of K=4 have 4 or 8 requests there, and its batches 9 or 10."""
    tiers = tiers_of_schedule(10, [[1, 8, 1], [9, 10, 4]])
    planned = plan(10, tiers, divisor=4)
    assert planned.sizes_by_k == {1: (4, 8, 12, 16), 4: ()}
    (note,) = planned.notes
    assert "K=4: batches of 9 requests and more" in note
    assert "max_num_seqs=12 covers them" in note
    # Nor can a limit on tokens leave it a graph that is too narrow for its batches.
    tiers = tiers_of_schedule(64, [[1, 8, 3], [9, 64, 1]])
    planned = plan(64, tiers, budget=Budget(max_tokens=16))
    assert planned.sizes_by_k == {1: (), 3: (4, 8, 12, 16)}
    with pytest.raises(ConfigError, match="nearest that works is 4"):
        plan(64, tiers, budget=Budget(max_tokens=3))


def test_measured_times_change_what_pays() -> None:
    """Where all graphs up to 64 tokens take as long, none below 64 pays."""
    work = StepCost(times=((1, 10.0), (64, 10.0), (128, 20.0)))
    planned = plan(32, 3, budget=Budget(graphs=2), work=work)
    assert planned.sizes[0] >= 64


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"max_num_seqs": 0}, ["max_num_seqs=0", "1 or more"]),
        ({"max_num_seqs": 2.5}, ["max_num_seqs=2.5"]),
        ({"tiers": -1}, ["num_speculative_tokens=-1", "0 or more"]),
        ({"tiers": ()}, ["tiers", "empty"]),
        ({"tiers": (3, 3)}, ["tiers", "nearest: 3"]),
        ({"tiers": True}, ["num_speculative_tokens=True"]),
        ({"tiers": (Tier(3, ((1, 9),)),)}, ["tiers", "max_num_seqs=8"]),
        ({"tiers": (Tier(3, ((4, 8), (1, 2))),)}, ["tiers", "ascend"]),
        ({"tiers": (Tier(3, ((1, 4),)), Tier(3, ((5, 8),)))}, ["tiers", "twice"]),
        ({"divisor": 0}, ["divisor=0"]),
        ({"max_num_seqs": 2, "divisor": 8}, ["divisor=8", "nearest", "max_num_seqs=4"]),
    ],
)
def test_what_cannot_be_planned_is_refused(details: dict, words: list[str]) -> None:
    arguments = {"max_num_seqs": 8, "tiers": 1, **details}
    with pytest.raises(ConfigError) as refused:
        plan(**arguments)
    assert isinstance(refused.value, ValueError)
    for word in words:
        assert word in str(refused.value)
