"""What is known of acceptance, by position."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.control.acceptance import PRIOR_RATE, RecentAcceptance


def told(longest: int, rates: list[float], steps: int = 4000) -> RecentAcceptance:
    """Return what is known after many requests whose drafts are accepted so often."""
    draw, found = random.Random(0), RecentAcceptance(longest)
    for _ in range(steps):
        accepted = 0
        while accepted < longest and draw.random() < rates[accepted]:
            accepted += 1
        found.note(longest, accepted)
    return found


def test_rates_are_those_of_drafts_that_were_looked_at() -> None:
    found = told(3, [0.9, 0.5, 0.8]).rates()
    assert found == pytest.approx([0.9, 0.5, 0.8], abs=0.08)


def test_tokens_are_the_expected_length_of_what_is_accepted() -> None:
    found = told(3, [0.9, 0.5, 0.8])
    assert found.tokens(0) == 1.0
    assert found.tokens(3) == pytest.approx(1 + 0.9 + 0.45 + 0.36, abs=0.15)


def test_nothing_is_known_at_first() -> None:
    assert RecentAcceptance(4).rates() == [pytest.approx(PRIOR_RATE)] * 4
    assert RecentAcceptance(4).num_observed == 0


def test_positions_that_were_not_reached_are_like_the_one_before() -> None:
    found = RecentAcceptance(5)
    for _ in range(1000):
        found.note(2, 2)
    assert min(found.rates()) > 0.98
    for _ in range(3000):
        found.note(1, 0)
    assert found.rates()[0] < 0.02


def test_the_newest_counts_most() -> None:
    found = RecentAcceptance(1, window=64)
    for _ in range(5000):
        found.note(1, 1)
    for _ in range(256):
        found.note(1, 0)
    assert found.rates()[0] < 0.1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=60))
def test_rates_are_rates_and_more_drafts_are_never_fewer_tokens(steps) -> None:
    found = RecentAcceptance(4)
    for drafts, accepted in steps:
        found.note(drafts, min(drafts, accepted))
    assert all(0 <= rate <= 1 for rate in found.rates())
    tokens = [found.tokens(k) for k in range(5)]
    assert tokens == sorted(tokens)
    assert 1 <= tokens[-1] <= 5


def test_drafts_that_were_not_verified_count_as_what_was_expected_of_them() -> None:
    """Half of the second drafts are hopeless and not verified, the others always accepted."""
    found, blind = RecentAcceptance(3), RecentAcceptance(3)
    for step in range(2000):
        for each in (found, blind):
            each.note(1 if step % 2 else 3, 1 if step % 2 else 3)
        if step % 2:
            found.assume(1, [1.0, 0.0, 0.5])
    assert blind.rates() == pytest.approx([1.0, 1.0, 1.0], abs=0.05)
    # The third is reached only behind the good ones.
    assert found.rates() == pytest.approx([1.0, 0.5, 1.0], abs=0.05)


@given(st.integers(0, 4), st.lists(st.floats(0.0, 1.0), max_size=6))
def test_what_is_assumed_leaves_rates_rates(verified: int, rates: list[float]) -> None:
    found = RecentAcceptance(4)
    for _ in range(20):
        found.assume(verified, rates)
    assert all(0.0 <= rate <= 1.0 for rate in found.rates())
    assert found._verified[: min(verified, 4)] == [0.0] * min(verified, 4)
