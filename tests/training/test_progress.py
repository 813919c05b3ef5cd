"""The line that shows how far a phase is."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.training.progress import Progress, duration


def test_rate_and_time_left_are_of_this_start() -> None:
    now = [100.0]
    progress = Progress("answers", 1000, done=400, clock=lambda: now[0])
    now[0] += 10
    assert progress.add(100, 5000) == "answers: 500 of 1,000 prompts, 500 tokens/s, 50 s left"
    now[0] += 30
    assert (
        progress.add(100, 20_000) == "answers: 600 of 1,000 prompts, 625 tokens/s, 1 min 20 s left"
    )
    now[0] += 10
    assert progress.add(400, 0).endswith(", 0 s left")


def test_nothing_done_yet_gives_no_time() -> None:
    progress = Progress("answers", 10, clock=lambda: 0.0)
    assert progress.add(0, 0) == "answers: 0 of 10 prompts, 0 tokens/s, unknown time left"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
