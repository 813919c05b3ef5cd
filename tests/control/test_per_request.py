"""What is known of the drafts of single requests, and which of them are worth a row."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.per_request import FADE, WEIGHT, PerRequestAcceptance

LONGEST = 3


def known(accepted: dict[str, int], steps: int = 40) -> PerRequestAcceptance:
    """Return what is known after steps in which each request accepted so many drafts."""
    each = PerRequestAcceptance(RecentAcceptance(LONGEST))
    for _ in range(steps):
        for req_id, count in accepted.items():
            each.overall.note(LONGEST, count)
            each.note(req_id, LONGEST, count)
        each.end_step(accepted)
    return each


def test_requests_are_told_apart() -> None:
    each = known({"good": 3, "bad": 0})
    rates = each.overall.rates()
    good, bad = each.chances("good", rates), each.chances("bad", rates)
    assert good[0] > 0.8
    assert bad[0] < 0.2
    assert each.limits(price=0.25) == {"bad": 0}
    # Of one that was never seen nothing is known but what is known of all.
    assert each.chances("new", rates)[0] == rates[0]


def test_rows_that_cost_nothing_are_always_worth_it() -> None:
    assert known({"bad": 0}).limits(price=0.0) == {}


def test_a_request_that_accepts_some_is_verified_so_far() -> None:
    assert known({"one": 1, "all": 3}).limits(price=0.5) == {"one": 1}


def test_what_is_known_fades_so_that_drafts_are_tried_again() -> None:
    each = known({"good": 3, "bad": 0})
    assert "bad" in each.limits(price=0.25)
    for _ in range(4 * FADE):
        each.overall.note(LONGEST, LONGEST)
        each.end_step(["good", "bad"])
    assert each.limits(price=0.25) == {}


def test_requests_that_are_gone_are_forgotten() -> None:
    each = PerRequestAcceptance(RecentAcceptance(LONGEST))
    for number in range(20 * FADE):
        each.note(f"r{number}", LONGEST, 1)
        each.end_step([f"r{number}"])
    assert len(each._counts) <= 9 * FADE


def test_the_tokens_of_a_batch_are_the_mean_of_its_requests() -> None:
    each = known({"good": 3, "bad": 0})
    rates = each.overall.rates()
    chances = [each.chances(name, rates) for name in ("good", "bad")]
    expected = 1 + sum(sum(chance[:2]) for chance in chances) / 2
    assert abs(each.tokens(2) - expected) < 1e-12
    # The good one alone, then nobody of whom something is known.
    each.end_step(["good"])
    assert each.tokens(2) > expected
    assert PerRequestAcceptance(each.overall).tokens(2) == each.overall.tokens(2)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 4))))
def test_chances_are_chances_and_fall_from_draft_to_draft(notes) -> None:
    each = PerRequestAcceptance(RecentAcceptance(LONGEST))
    for req_id, drafts, accepted in notes:
        each.note(req_id, drafts, min(drafts, accepted))
        each.end_step("ab")
        chances = each.chances(req_id, each.overall.rates())
        assert all(0.0 <= chance <= 1.0 for chance in chances)
        assert chances == sorted(chances, reverse=True)


def test_what_saves_little_is_not_worth_batches_that_differ() -> None:
    """One row in many that is hardly worth its time."""
    each = known({f"good{n}": LONGEST for n in range(8)} | {"bad": 0})
    chance = each.chances("bad", each.overall.rates())[0]
    assert each.limits(price=chance * 1.1) == {}
    assert each.limits(price=0.9) != {}


def test_drafts_that_are_not_made_are_no_reason() -> None:
    each = known({"one": 1, "all": 3})
    assert each.limits(price=0.5, drafts=1) == {}
    assert each.limits(price=0.5, drafts=3) == {"one": 1}


def test_limits_pay_where_requests_differ() -> None:
    """Half of the requests accept nine drafts in ten, the others hardly any; rows are paid for."""
    row, rest = 0.001, 0.002
    rates = {f"r{n}": 0.9 if n % 2 else 0.03 for n in range(8)}

    def speed(*, is_limited: bool) -> float:
        draw = random.Random(3)
        each, limits = PerRequestAcceptance(RecentAcceptance(LONGEST)), {}
        tokens = seconds = 0.0
        for step in range(800):
            for req_id, rate in rates.items():
                drafts = limits.get(req_id, LONGEST)
                accepted = 0
                while accepted < drafts and draw.random() < rate:
                    accepted += 1
                if drafts:
                    each.overall.note(drafts, accepted)
                    each.note(req_id, drafts, accepted)
                tokens += accepted + 1
                seconds += row * (drafts + 1)
            seconds += rest
            each.end_step(rates)
            if is_limited and step % 8 == 0:
                limits = dict(each.limits(row * tokens / seconds))
        return tokens / seconds

    assert speed(is_limited=True) > 1.15 * speed(is_limited=False)


def test_little_evidence_weighs_little() -> None:
    each = known({"good": 3})
    each.note("new", LONGEST, 0)
    rate = each.overall.rates()[0]
    assert each.chances("new", each.overall.rates())[0] == rate * WEIGHT / (WEIGHT + 1)
