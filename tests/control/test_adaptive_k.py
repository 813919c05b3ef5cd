"""K is chosen by goodput: on engines made of formulas, and by nothing but counts and times."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.simulated import (
    Cost,
    Engine,
    adaptive,
    bound_by_compute,
    bound_by_memory,
    fixed,
)
from vllm_ascend_spec.control.adaptive_k import (
    EXPLORE_STEPS,
    HOLD_STEPS,
    PAYS,
    PROBE,
    PROBE_STEPS,
    UNKNOWN,
    AdaptiveK,
)

LENGTHS = range(5)


@pytest.mark.parametrize("rate", [0.02, 0.4, 0.8, 0.95])
@pytest.mark.parametrize("requests", [1, 4, 16])
@pytest.mark.parametrize("cost", [bound_by_memory, bound_by_compute])
def test_nearly_as_fast_as_the_best_fixed_length(cost: Cost, requests: int, rate: float) -> None:
    batches = [requests] * 3000
    best = max(fixed(Engine(cost, rate), batches, k) for k in LENGTHS)
    assert adaptive(Engine(cost, rate), batches, LENGTHS) >= 0.97 * best


def test_faster_than_every_fixed_length_where_the_load_changes() -> None:
    """Drafts pay while rows are free, and not where they are not."""

    def cost(requests: int, rows: int, drafts: int) -> float:
        return 0.010 + 0.0015 * max(0, rows - 8) + 0.0003 * drafts

    alone, crowd = [1] * 900, [16] * 300
    speeds = [fixed(Engine(cost, 0.7), (alone + crowd) * 3, k) for k in LENGTHS]
    # What somebody would do who knew everything: four drafts for one request, none for sixteen.
    parts = Engine(cost, 0.7), Engine(cost, 0.7)
    fixed(parts[0], alone, 4)
    fixed(parts[1], crowd, 0)
    known = sum(part.tokens for part in parts) / sum(part.seconds for part in parts)
    found = adaptive(Engine(cost, 0.7), (alone + crowd) * 3, LENGTHS)
    assert found > max(speeds)
    assert found >= 0.98 * known


@pytest.mark.parametrize("seed", range(8))
def test_it_comes_back_when_drafts_are_accepted_again(seed: int) -> None:
    engine, chooser = Engine(bound_by_memory, 0.01, seed=seed), AdaptiveK(LENGTHS)
    for _ in range(600):
        engine.step(4, chooser.choose(4).k, chooser)
    assert engine.chosen[-200:].count(0) > 150
    engine.rate = 0.9
    for _ in range(1200):
        engine.step(4, chooser.choose(4).k, chooser)
    assert engine.chosen[-200:].count(4) > 150


def test_a_length_whose_first_steps_take_longer_is_chosen_where_it_is_the_best() -> None:
    """By 7%: about what the steps that are not timed would add to it."""

    def cost(requests: int, rows: int, drafts: int) -> float:
        return 0.0075 * (1.3 + 0.2 * drafts if drafts else 1.0)

    def engine(seed: int) -> Engine:
        return Engine(cost, 0.4, seed=seed, settling=0.15)

    batches, lengths = [16] * 2000, range(3)
    speeds = [fixed(engine(0), batches, k) for k in lengths]
    assert max(speeds) == speeds[0]
    found = [adaptive(engine(seed), batches, lengths) for seed in range(6)]
    assert sum(found) / len(found) >= 0.98 * speeds[0]


def test_what_does_not_pay_is_looked_at_ever_more_seldom() -> None:
    engine, chooser = Engine(bound_by_compute, 0.01), AdaptiveK([0, 3])
    for _ in range(6000):
        engine.step(8, chooser.choose(8).k, chooser)
    late = engine.chosen[3000:]
    assert 0 < late.count(3) <= 4 * EXPLORE_STEPS


def test_none_is_hardly_looked_at_again_where_drafts_pay_by_far() -> None:
    """What steps without drafts take is known, and what they yield."""
    engine, chooser = Engine(bound_by_memory, 0.8), AdaptiveK([0, 3])
    for _ in range(3000):
        engine.step(4, chooser.choose(4).k, chooser)
    # Until it was measured often enough, and then twice, in case the machine was busy at first.
    assert EXPLORE_STEPS < engine.chosen[:500].count(0) <= EXPLORE_STEPS + 3 * PROBE_STEPS
    assert engine.chosen[500:].count(0) <= 2 * PROBE_STEPS
    # Of four times as many requests it is not.
    for _ in range(200):
        engine.step(16, chooser.choose(16).k, chooser)
    assert engine.chosen[3000:].count(0) > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_time_that_was_wrong_is_found_out_though_other_batches_had_long_waits(seed: int) -> None:
    """Drafts are never accepted, and cost nothing in batches of one (0.90 of none once)."""
    times = {(1, 0): 0.0080, (1, 3): 0.0075, (4, 0): 0.0102, (4, 3): 0.0116}
    is_slow = True

    def cost(requests: int, rows: int, drafts: int) -> float:
        return times[requests, drafts] * (1.3 if is_slow and (requests, drafts) == (4, 0) else 1.0)

    engine, chooser = Engine(cost, 0.0, seed=seed), AdaptiveK([0, 3])
    for requests in [1] * 1500 + [4] * 60:
        engine.step(requests, chooser.choose(requests).k, chooser)
    is_slow = False
    for requests in ([1] * 1500 + [4] * 380) * 2:
        engine.step(requests, chooser.choose(requests).k, chooser)
    assert engine.chosen[-380:].count(0) > 340


@pytest.mark.parametrize("seed", range(6))
def test_a_time_that_was_wrong_by_far_is_found_out(seed: int) -> None:
    """The machine was busy whenever steps without drafts were measured (0.90 of none once)."""
    is_busy = True

    def cost(requests: int, rows: int, drafts: int) -> float:
        return 0.0096 if drafts else 0.0087 * (1.6 if is_busy else 1.0)

    engine, chooser = Engine(cost, 0.0, seed=seed), AdaptiveK([0, 3])
    for _ in range(1500):
        engine.step(1, chooser.choose(1).k, chooser)
    assert engine.chosen[-200:].count(3) > 190
    is_busy = False
    for _ in range(3000):
        engine.step(1, chooser.choose(1).k, chooser)
    assert engine.chosen[-200:].count(0) > 190


@pytest.mark.parametrize("worth", [0.96, 0.976])
def test_nothing_is_drafted_where_it_pays_just_not(worth: float) -> None:
    """What three drafts are worth, of none: less, and by less than what a choice is kept for."""

    def cost(requests: int, rows: int, drafts: int) -> float:
        return 0.016 * (1.875 / worth if drafts else 1.0)

    speeds = [
        adaptive(Engine(cost, 0.5, seed=seed, settling=0.1), [16] * 1500, [0, 3])
        for seed in range(20)
    ]
    assert sum(speeds) / len(speeds) >= 0.992 * 16 / 0.016


@pytest.mark.parametrize("factor", [1.8, 5.0])
def test_first_steps_that_compile_do_not_hide_what_pays(factor: float) -> None:
    """Once what was measured of them was believed, and hardly corrected."""
    slow = iter(range(4))

    def cost(requests: int, rows: int, drafts: int) -> float:
        if drafts:
            return 0.0377
        return 0.0137 * (factor if next(slow, None) is not None else 1.0)

    engine, chooser = Engine(cost, 0.56), AdaptiveK([0, 3])
    for _ in range(400):
        engine.step(16, chooser.choose(16).k, chooser)
    assert engine.chosen[-200:].count(0) > 190


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("requests", [1, 4, 16])
@pytest.mark.parametrize("cost", [bound_by_memory, bound_by_compute])
def test_k_or_none_is_nearly_as_fast_as_the_better_of_the_two(
    cost: Cost, requests: int, rate: float
) -> None:
    batches, ratios = [requests] * 1500, []
    for seed in range(4):
        best = max(fixed(Engine(cost, rate, seed=seed), batches, k) for k in (0, 3))
        ratios.append(adaptive(Engine(cost, rate, seed=seed), batches, [0, 3]) / best)
    assert sum(ratios) / len(ratios) >= 0.97


def first_lengths(cost: Cost, rate: float, requests: int) -> list[int]:
    """Return the lengths that are looked at before one is chosen because it pays."""
    engine, chooser = Engine(cost, rate), AdaptiveK(LENGTHS)
    while (choice := chooser.choose(requests)).reason == UNKNOWN:
        engine.step(requests, choice.k, chooser)
    assert choice.reason == PAYS
    return [k for k, _ in itertools.groupby(engine.chosen)]


def test_the_longest_and_the_shortest_are_measured_first_then_what_may_be_the_best() -> None:
    assert first_lengths(bound_by_compute, 0.02, 16) == [4, 0]
    longest, shortest, *more = first_lengths(bound_by_memory, 0.5, 2)
    assert (longest, shortest) == (4, 0)
    assert set(more) == {1, 2, 3}


@pytest.mark.parametrize("rate", [0.02, 0.5, 0.9])
def test_little_is_lost_at_the_start(rate: float) -> None:
    """The number of clients that decode changes with almost every step."""
    batches = [14, 15, 16, 16] * 60
    best = max(fixed(Engine(bound_by_compute, rate), batches, k) for k in LENGTHS)
    found = [adaptive(Engine(bound_by_compute, rate, seed=s), batches, LENGTHS) for s in range(4)]
    assert sum(found) / len(found) >= 0.89 * best


def test_a_few_requests_more_or_less_change_nothing() -> None:
    """15 and 16 were another order of magnitude once, and nothing was kept."""
    engine, chooser = Engine(bound_by_memory, 0.5), AdaptiveK(LENGTHS)
    for requests in itertools.islice(itertools.cycle([15, 16]), 400):
        engine.step(requests, chooser.choose(requests).k, chooser)
    runs = [len(list(run)) for _, run in itertools.groupby(engine.chosen[:-HOLD_STEPS])]
    assert min(runs) >= min(HOLD_STEPS, EXPLORE_STEPS)


def test_a_choice_is_kept_for_a_while() -> None:
    engine, chooser = Engine(bound_by_memory, 0.5), AdaptiveK(LENGTHS)
    for _ in range(500):
        engine.step(2, chooser.choose(2).k, chooser)
    runs = [
        len(list(run))
        for _, run in itertools.groupby(engine.chosen[5 * EXPLORE_STEPS : -HOLD_STEPS])
    ]
    assert min(runs) >= min(HOLD_STEPS, EXPLORE_STEPS)


def test_there_is_nothing_to_choose_from_one_length() -> None:
    chooser = AdaptiveK([3])
    for _ in range(300):
        chooser.costs.note(1, 3, 0.01)
        choice = chooser.choose(1)
        assert choice.k == 3
        assert choice.reason != PROBE


@pytest.mark.parametrize("lengths", [[], [0], [-1, 2]])
def test_no_lengths_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="no K to choose"):
        AdaptiveK(lengths)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 32), st.integers(0, 4), st.floats(0.001, 1.0)),
        min_size=1,
        max_size=120,
    )
)
def test_a_choice_is_one_of_the_lengths_and_follows_from_counts_and_times_alone(steps) -> None:
    first, second = AdaptiveK(LENGTHS), AdaptiveK(LENGTHS)
    for requests, accepted, seconds in steps:
        choices = [chooser.choose(requests) for chooser in (first, second)]
        assert choices[0] == choices[1]
        assert choices[0].k in LENGTHS
        for chooser in (first, second):
            drafts = choices[0].k
            chooser.costs.note(requests, drafts, seconds)
            chooser.acceptance.note(drafts, min(accepted, drafts))
