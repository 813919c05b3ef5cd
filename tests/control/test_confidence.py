"""How many drafts are verified by confidence: the best number, decided before each draft."""

from __future__ import annotations

import math
import random
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.confidence import (
    EDGE,
    ConfidenceLimits,
    Estimate,
    combine,
    odds,
    worth,
)
from vllm_ascend_spec.control.per_request import PerRequestAcceptance

LONGEST = 4
RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=LONGEST)


def make_limits(price: float | None = 0.3) -> ConfidenceLimits:
    """Return limits of which nothing is known but the price of a row."""
    limits = ConfidenceLimits(PerRequestAcceptance(RecentAcceptance(LONGEST)))
    limits.price = price
    return limits


def told(rate: float, by: float) -> float:
    """Return a rate whose log odds are higher by ``by``."""
    return 1.0 / (1.0 + math.exp(-by) / odds(rate))


class Drafts:
    """Requests whose drafts are accepted as often as ``told`` says, or hardly so.

    Args:
        told: how much is added to the log odds of the confidences.
        is_informed: whether confidences say anything.
    """

    def __init__(self, *, told: float = 0.0, is_informed: bool = True, price: float = 0.3) -> None:
        self.limits, self.draw = make_limits(price), random.Random(7)
        self.told, self.is_informed = told, is_informed
        self.rows = self.tokens = 0

    def step(self, *, may_limit: bool = True) -> Estimate:
        """Draft and verify for one request."""
        limits, counts = self.limits, self.limits._per_request
        rates = [self.draw.choice((0.1, 0.9)) for _ in range(LONGEST)]
        shown = rates if self.is_informed else [self.draw.choice((0.1, 0.9)) for _ in rates]
        confidences = [told(rate, self.told) for rate in shown]
        found = limits.estimate({"a": confidences}, may_limit=may_limit)["a"]
        accepted = 0
        while accepted < found.limit and self.draw.random() < rates[accepted]:
            accepted += 1
        limits.note(found, found.limit, accepted)
        if found.limit:
            counts.overall.note(found.limit, accepted)
            counts.note("a", found.limit, accepted)
        if accepted == found.limit:
            counts.overall.assume(accepted, found.rates)
        counts.end_step(["a"])
        self.rows += found.limit + 1
        self.tokens += accepted + 1
        return found


@given(RATES, st.floats(0.0, 1.0))
def test_no_other_number_of_drafts_is_better(rates: list[float], price: float) -> None:
    chances = list(accumulate(rates, mul))

    def value(length: int) -> float:
        """Return the expected tokens beyond what the rows cost."""
        return sum(chances[:length]) - price * length

    best = max(value(length) for length in range(len(rates) + 1))
    assert value(worth(rates, price)) == pytest.approx(best)


@given(RATES, RATES, st.floats(0.0, 1.0))
def test_whether_a_draft_is_verified_depends_on_none_after_it(
    rates: list[float], later: list[float], price: float
) -> None:
    for length in range(len(rates) + 1):
        known, whole = worth(rates[:length], price), worth([*rates[:length], *later], price)
        assert min(whole, length) == known


def test_later_confidences_change_nothing_before_them() -> None:
    """Not in the step that they belong to, whichever requests come before in the batch."""

    def found(later: float) -> tuple[int, list[float]]:
        drafts = Drafts()
        for _ in range(200):
            drafts.step()
        confidences = {name: [0.9, *[later] * 3] for name in ("b", "c")}
        confidences["a"] = [0.9, 0.9, 0.05, later]
        estimate = drafts.limits.estimate(confidences, may_limit=True)["a"]
        return estimate.limit, list(estimate.rates[:3])

    assert found(0.01) == found(0.99)
    assert found(0.01)[0] == 2


@given(*[st.floats(0.05, 0.95)] * 3)
def test_both_estimates_are_combined_by_bayes_rule(
    prior: float, if_accepted: float, if_rejected: float
) -> None:
    """Two coins that fall as often as they do if a draft is accepted, or if it is not."""
    one = if_accepted * prior / (if_accepted * prior + if_rejected * (1 - prior))
    accepted, rejected = prior * if_accepted**2, (1 - prior) * if_rejected**2
    both = accepted / (accepted + rejected)
    factors = [1 / odds(prior)]
    if min(one, 1 - one) > EDGE:
        assert combine([one], [one], factors)[0] == pytest.approx(both)
        # What adds nothing to the common rate leaves the other one alone.
        assert combine([one], [prior], factors)[0] == pytest.approx(one)
        assert combine([prior], [one], factors)[0] == pytest.approx(one)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_no_estimate_is_certain(rate: float) -> None:
    """Heads whose sigmoid ends at 0 or 1."""
    found = combine([rate] * 2, [rate] * 2, [1 / odds(1 - rate)] * 2)
    assert all(0.0 < probability < 1.0 for probability in found)


@pytest.mark.parametrize("told", [-1.5, 1.5])
def test_confidences_that_are_too_low_or_too_high_are_corrected(told: float) -> None:
    drafts = Drafts(told=told)
    for _ in range(600):
        drafts.step(may_limit=False)
    assert abs(drafts.limits.offset + told) < 0.7
    assert drafts.limits.is_better


def test_confidences_that_say_nothing_are_not_used() -> None:
    drafts = Drafts(is_informed=False)
    for _ in range(300):
        drafts.step()
    assert not drafts.limits.is_better
    assert not drafts.limits.pays(LONGEST)
    assert drafts.limits.rows_left_out(LONGEST) == 0.0
    by_counts = drafts.limits._per_request.tokens
    assert [drafts.limits.tokens(k) for k in range(5)] == [by_counts(k) for k in range(5)]


def test_rows_that_cost_nothing_are_all_verified() -> None:
    drafts = Drafts(price=0.0)
    assert {drafts.step().limit for _ in range(200)} == {LONGEST}


def test_nothing_is_left_out_while_the_price_is_unknown() -> None:
    limits = make_limits(None)
    found = limits.estimate({"a": [0.0] * LONGEST}, may_limit=True)
    assert found["a"].limit == LONGEST
    assert not limits.pays(LONGEST)


def test_expected_tokens_and_rows_are_those_of_the_steps() -> None:
    drafts = Drafts()
    for _ in range(300):
        drafts.step()
    drafts.rows = drafts.tokens = 0
    steps = 600
    for _ in range(steps):
        drafts.step()
    limits = drafts.limits
    assert limits.tokens(LONGEST) == pytest.approx(drafts.tokens / steps, abs=0.15)
    rows = LONGEST + 1 - limits.rows_left_out(LONGEST)
    assert rows == pytest.approx(drafts.rows / steps, abs=0.25)
    # They are less than they would be if all drafts were as good as those that are verified.
    assert limits.tokens(LONGEST) < limits._per_request.tokens(LONGEST) - 0.5
    assert 1.0 < limits.tokens(1) < limits.tokens(2) < limits.tokens(LONGEST)


def test_confidences_save_rows_for_about_as_many_tokens() -> None:
    price, steps = 0.3, 800
    informed, counted = Drafts(price=price), Drafts(price=price, is_informed=False)
    for drafts in (informed, counted):
        for _ in range(steps):
            drafts.step()
    by_confidence, by_counts = (d.tokens - price * d.rows for d in (informed, counted))
    assert by_confidence > by_counts + 0.2 * steps
    assert informed.rows < 0.7 * counted.rows
    assert informed.tokens > 0.9 * counted.tokens


def test_in_a_batch_limits_have_to_save_more_than_widths_that_differ_cost() -> None:
    drafts = Drafts(price=0.02)
    for _ in range(200):
        drafts.step()
    limits, counts = drafts.limits, drafts.limits._per_request
    assert limits.pays(LONGEST)
    counts.end_step(["a", "b"])
    assert not limits.pays(LONGEST)
    limits.price = 0.3
    assert limits.pays(LONGEST)
