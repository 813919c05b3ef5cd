"""Times of steps: measured, smoothed, estimated between."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from vllm_ascend_spec.control.cost_model import MIN_MEASUREMENTS, REFIT_INTERVAL, CostModel
from vllm_ascend_spec.control.step_timer import StepTimer, TimedStep


def seconds_of(requests: int, drafts: int) -> float:
    """Return the time of a step of an engine of the form that is fitted."""
    return 0.004 + 0.0005 * requests * (drafts + 1) + 0.001 * drafts


def measured(*cells: tuple[int, int]) -> CostModel:
    """Return the costs of an engine of which some cells were measured."""
    costs = CostModel()
    for requests, drafts in cells:
        for _ in range(MIN_MEASUREMENTS):
            costs.note(requests, drafts, seconds_of(requests, drafts))
    return costs


def test_what_was_measured_is_returned() -> None:
    costs = measured((4, 3))
    assert costs.seconds(4, 3) == pytest.approx(seconds_of(4, 3))
    assert costs.is_known(4, 3)
    assert not costs.is_known(4, 2)


def test_after_a_long_time_new_measurements_count_most() -> None:
    costs = CostModel()
    for _ in range(40):
        costs.note(4, 0, 0.013)
    costs.note(4, 0, 0.010)
    found = costs.seconds(4, 0)
    assert found is not None
    assert found > 0.0125
    for _ in range(1000):
        costs.note(1, 3, 0.008)
    for _ in range(3):
        costs.note(4, 0, 0.010)
    assert costs.seconds(4, 0) == pytest.approx(0.010, rel=0.1)


def test_what_is_left_of_a_step_behind_a_late_one_is_no_time() -> None:
    costs = measured((4, 3))
    usual = seconds_of(4, 3)
    for late in (1.9, 1.0, 1.9, 1.0):
        costs.note(4, 3, usual * late)
        costs.note(4, 3, usual * 0.1)
        costs.note(4, 3, usual)
    assert costs.seconds(4, 3) == pytest.approx(usual, rel=0.3)
    for _ in range(2):
        costs.note(4, 3, usual * 0.1)
    assert costs.seconds(4, 3) == pytest.approx(usual * 0.1)


def test_a_length_that_was_never_tried_is_unknown() -> None:
    assert measured((4, 3)).seconds(4, 1) is None
    once = CostModel()
    once.note(4, 1, 0.01)
    assert once.seconds(4, 1) is None


def test_a_length_between_two_others_is_on_a_line() -> None:
    costs = measured((4, 0), (4, 3))
    for drafts in (1, 2, 5):
        assert costs.seconds(4, drafts) == pytest.approx(seconds_of(4, drafts))
        assert not costs.is_measured(drafts)
    assert costs.is_measured(3)


def test_no_time_is_negative() -> None:
    costs = CostModel()
    for drafts, seconds in ((3, 0.01), (4, 0.03)):
        for _ in range(MIN_MEASUREMENTS):
            costs.note(4, drafts, seconds)
    found = costs.seconds(4, 0)
    assert found is not None
    assert found > 0


def test_other_batches_are_estimated_by_the_fit() -> None:
    costs = measured((1, 0), (1, 1), (1, 3), (8, 0), (8, 3))
    for requests in (2, 4, 16, 32):
        for drafts in (0, 1, 3):
            found = costs.seconds(requests, drafts)
            assert found == pytest.approx(seconds_of(requests, drafts), rel=0.02)


def test_the_fit_is_made_anew_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = measured((1, 0), (1, 3), (8, 0), (8, 3))
    fits = []
    stock = np.linalg.lstsq
    monkeypatch.setattr(np.linalg, "lstsq", lambda *a, **k: fits.append(1) or stock(*a, **k))
    for _ in range(4 * REFIT_INTERVAL):
        for n in (1, 8):
            for k in (0, 3):
                costs.note(n, k, 2 * seconds_of(n, k))
        costs.seconds(4, 1)
        costs.row_seconds(4)
    assert 8 <= len(fits) <= 4 * 4 * REFIT_INTERVAL / REFIT_INTERVAL + 1
    assert costs.seconds(4, 3) == pytest.approx(2 * seconds_of(4, 3), rel=0.02)
    # A cell that is new counts at once.
    before = len(fits)
    for _ in range(MIN_MEASUREMENTS):
        costs.note(16, 3, 2 * seconds_of(16, 3))
    costs.seconds(12, 3)
    assert len(fits) == before + 1


def test_one_size_of_batch_alone_is_scaled_with_care() -> None:
    costs = measured((4, 2))
    found = costs.seconds(16, 2)
    assert found is not None
    assert seconds_of(4, 2) < found < 4 * seconds_of(4, 2)


def test_a_step_that_waited_for_something_else_counts_little() -> None:
    costs = measured((4, 3))
    costs.note(4, 3, 100 * seconds_of(4, 3))
    found = costs.seconds(4, 3)
    assert found is not None
    assert found < 4 * seconds_of(4, 3)


def test_a_machine_that_has_become_slower_is_noticed() -> None:
    costs = measured((4, 3))
    for _ in range(60):
        costs.note(4, 3, 1.5 * seconds_of(4, 3))
    assert costs.seconds(4, 3) == pytest.approx(1.5 * seconds_of(4, 3), rel=0.01)


@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.inf, math.nan])
def test_no_time_is_not_taken(nonsense: float) -> None:
    costs = CostModel()
    costs.note(1, 1, nonsense)
    assert costs.cells() == {}


def test_a_step_is_timed_where_those_before_it_made_as_many_drafts() -> None:
    costs = CostModel()
    clock = StepTimer(costs)
    ends = [
        (TimedStep(4, 3, has_prompts=True), 0.7),
        (TimedStep(4, 3, has_prompts=False), 1.0),  # the first that verifies as many as it makes
        (TimedStep(4, 3, has_prompts=False), 1.1),
        (TimedStep(4, 1, has_prompts=False), 1.6),  # verifies three
        (TimedStep(4, 1, has_prompts=False), 1.7),
        (TimedStep(4, 1, has_prompts=False), 1.75),
        (TimedStep(3, 1, has_prompts=False), 1.79),  # one request has ended
        (TimedStep(4, 1, has_prompts=True), 9.0),  # waited for, perhaps
    ]
    for step, now in ends:
        clock.ended(step, now)
    found = {key: cell.seconds for key, cell in costs.cells().items()}
    assert found == {
        (4, 3): pytest.approx(0.1),
        (4, 1): pytest.approx(0.05),
        (3, 1): pytest.approx(0.04),
    }


def test_what_a_request_costs_besides_its_rows_is_not_taken_for_rows() -> None:
    """The fit alone says six times as much: nothing in it is by the request."""
    costs, row, request, draft = CostModel(), 1e-4, 2e-3, 1e-4
    for n in (1, 4, 16):
        for k in (0, 3):
            for _ in range(MIN_MEASUREMENTS):
                costs.note(n, k, n * (row * (k + 1) + request) + draft * k + 5e-3)
    fit = costs._fit()
    assert fit is not None
    assert fit[0] > 5 * row
    assert costs.row_seconds(16) == pytest.approx(row + draft / 16)


def test_rows_are_the_fits_where_one_length_alone_was_measured() -> None:
    costs = CostModel()
    for n in (1, 2, 4):
        for _ in range(MIN_MEASUREMENTS):
            costs.note(n, 3, 1e-3 * n + 5e-3)
    assert costs.row_seconds(4) == pytest.approx(2.5e-4, rel=0.01)
    assert CostModel().row_seconds(4) is None


def after_a_long_answer(*, is_told: bool) -> CostModel:
    """Measure all lengths at the beginning of an answer, and one while its context grows."""
    costs, draw = CostModel(), random.Random(1)
    for k in (0, 1, 3):
        for _ in range(4):
            costs.note(4, k, seconds_of(4, k) + 4 * 100 * PER_TOKEN, 100.0)
    for context in range(100, 4000, 10):
        seconds = (seconds_of(4, 3) + 4 * context * PER_TOKEN) * draw.gauss(1.0, 0.05)
        costs.note(4, 3, seconds, float(context) if is_told else 0.0)
    return costs


PER_TOKEN = 1e-6


@pytest.mark.parametrize("drafts", [0, 1, 2, 3])
def test_times_are_brought_to_the_context_at_hand(drafts: int) -> None:
    wanted = seconds_of(4, drafts) + 4 * 4000 * PER_TOKEN
    assert after_a_long_answer(is_told=True).seconds(4, drafts) == pytest.approx(wanted, rel=0.1)


def test_else_what_was_measured_long_ago_seems_fast() -> None:
    """Negative control: no drafts, measured when the context was short."""
    wanted = seconds_of(4, 0) + 4 * 4000 * PER_TOKEN
    assert after_a_long_answer(is_told=False).seconds(4, 0) < 0.5 * wanted


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_not_taken_for_context(seed: int) -> None:
    costs, draw = CostModel(), random.Random(seed)
    for _ in range(300):
        costs.note(4, 3, 0.01 * draw.gauss(1.0, 0.05), draw.uniform(100.0, 200.0))
    found = costs.seconds(4, 3)
    costs.note(4, 1, 0.01, 5000.0)
    assert costs.seconds(4, 3) == pytest.approx(found)
