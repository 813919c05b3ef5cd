"""The choice between the whole text and some windows, by acceptance."""

from __future__ import annotations

import random

from vllm_ascend_spec.control.window_choice import HOLD, TRIAL, WindowChoice

SIZES = (256, 1024)
K = 3


def run(choice: WindowChoice, rates: dict[int | None, float], steps: int) -> list[int | None]:
    """Let steps of one request verify K drafts each; return the windows that were used."""
    draw, used = random.Random(0), []
    for _ in range(steps):
        window = choice.next_window()
        used.append(window)
        accepted = 0
        while accepted < K and draw.random() < rates[window]:
            accepted += 1
        choice.note(window, K, accepted)
    return used


def test_all_are_tried_in_turn_and_the_best_is_kept() -> None:
    choice = WindowChoice(SIZES, K)
    rates = {None: 0.2, 256: 0.7, 1024: 0.4}
    used = run(choice, rates, 3 * TRIAL)
    assert {size: used.count(size) for size in rates} == dict.fromkeys(rates, TRIAL)
    # In turn: all of them meet the same requests.
    assert set(used[:3]) == set(rates)
    assert choice.window == 256
    assert set(run(choice, rates, HOLD)) == {256}


def test_the_whole_text_stays_where_a_window_does_not_pay() -> None:
    choice = WindowChoice(SIZES, K)
    rates = dict.fromkeys((None, *SIZES), 0.5)
    run(choice, rates, 3 * TRIAL)
    assert choice.window is None
    run(choice, {None: 0.6, 256: 0.3, 1024: 0.5}, HOLD + 3 * TRIAL)
    assert choice.window is None


def test_windows_are_tried_again() -> None:
    choice = WindowChoice(SIZES, K)
    run(choice, {None: 0.6, 256: 0.3, 1024: 0.3}, 3 * TRIAL)
    assert choice.window is None
    for _ in range(4):
        run(choice, {None: 0.1, 256: 0.3, 1024: 0.7}, HOLD + 3 * TRIAL)
    assert choice.window == 1024


def test_a_change_is_reported_once() -> None:
    choice = WindowChoice((256,), K)
    changes = [choice.note(window, K, 2 if window else 0) for window in (None, 256) * TRIAL]
    assert changes == [False] * (2 * TRIAL - 1) + [True]
    assert not choice.note(256, K, 2)
