"""How many drafts are expected to be accepted."""

from __future__ import annotations

import random

import pytest

from vllm_ascend_spec.methods.hybrid.estimate import Drafts, Forecast, Outcomes

TOKENS = [1, 2, 3]


def drafts(chance: float = 1.0, kind: int = 0) -> Drafts:
    return Drafts(TOKENS, [kind] * 3, [chance] * 3)


@pytest.mark.parametrize(
    ("written", "outcomes"),
    [
        ([1, 2, 3, 9], [True, True, True]),
        ([1, 2, 9], [True, True, False]),
        ([9, 2, 3], [False]),
        ([1, 2], [True, True]),  # of the third nothing is known
        ([], []),
    ],
)
def test_outcomes_end_with_the_first_wrong_draft(written: list[int], outcomes: list[bool]) -> None:
    assert drafts().outcomes(written) == outcomes


def test_what_is_promised_is_believed_at_first() -> None:
    """The sum of the chances that all drafts up to each are right: a suffix tree's score."""
    assert Forecast().expect(drafts(1.0), Outcomes()) == pytest.approx(3)
    assert Forecast().expect(drafts(0.5), Outcomes()) == pytest.approx(0.5 + 0.25 + 0.125)


@pytest.mark.parametrize("truth", [0.3, 0.8])
@pytest.mark.parametrize("chance", [0.5, 1.0])
def test_what_happens_is_learnt(truth: float, chance: float) -> None:
    """Whatever was promised; of drafts behind a wrong one nothing is learnt."""
    draw, forecast = random.Random(0), Forecast()
    for _ in range(1500):
        written = [token if draw.random() < truth else 0 for token in TOKENS]
        forecast.learn(drafts(chance), drafts(chance).outcomes(written), Outcomes())
    expected = truth + truth**2 + truth**3
    assert forecast.expect(drafts(chance), Outcomes()) == pytest.approx(expected, rel=0.2)
    # Another kind is another matter.
    promised = chance + chance**2 + chance**3
    assert forecast.expect(drafts(chance, kind=1), Outcomes()) == pytest.approx(promised)


def test_a_request_unlike_the_others_is_told_from_them() -> None:
    forecast, usual, other = Forecast(), Outcomes(), Outcomes()
    for _ in range(200):
        forecast.learn(drafts(0.5), [True, False], usual)
    for _ in range(10):
        forecast.learn(drafts(0.5), [True, True, True], other)
    assert forecast.expect(drafts(0.5), other) > 1.5 * forecast.expect(drafts(0.5), usual)


def test_old_experience_fades() -> None:
    forecast = Forecast()
    for outcome in (False, True):
        for _ in range(3000):
            forecast.learn(drafts(), [outcome], Outcomes())
    assert forecast.expect(drafts(), Outcomes()) > 2.9


def test_no_drafts_promise_nothing() -> None:
    assert Forecast().expect(Drafts([], [], []), Outcomes()) == 0
