"""Many requests over several steps, with rejections between, write what the target writes.

``tests/ops`` judges one verification. Here what one step leaves to the next counts too: above all
which noise a draft may have where a position is drafted again.
"""

from __future__ import annotations

import pytest
import torch

from tests.ops.markov import deviation
from tests.verification.chain import (
    DRAFTS,
    FRESH,
    GREEDY,
    LENGTH,
    NUM_DRAFTS,
    SAMPLED,
    SEEDED,
    Key,
    Texts,
    by_position,
    count_texts,
    expected_texts,
)

# By chance once in 30,000 numbers, were they normal; the seeds are fixed.
BOUND = 5.0
FEW, MANY = 300_000, 3_000_000


@pytest.mark.parametrize("rule", ["token", "block"])
def test_texts_are_distributed_as_the_targets(rule: str) -> None:
    torch.manual_seed(0)
    counts = count_texts(1_000_000, rule)
    assert abs(deviation(counts, expected_texts())) < BOUND


# By day with sampled drafts: the texts of all others are the same ones, as a test below says.
@pytest.mark.parametrize("num_reqs", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("forbidden", [None, 1], ids=["free", "cut off by a grammar"])
@pytest.mark.parametrize(
    "drafts",
    [pytest.param(d, marks=() if d == SAMPLED else pytest.mark.nightly) for d in DRAFTS],
)
def test_texts_of_seeds_are_distributed_as_the_targets(
    drafts: str, forbidden: int | None, num_reqs: int
) -> None:
    """Counted over seeds, however drafts are made; the grammar may cut off sampled ones, too."""
    counts = count_texts(num_reqs, SEEDED, drafts=drafts, forbidden=forbidden)
    assert abs(deviation(counts, expected_texts(forbidden))) < BOUND


WRONG_KEYS: dict[str, Key] = {
    "the step": torch.full_like,
    "the place in the step": lambda lengths, step: torch.ones_like(lengths),
    "one noise for two positions": lambda lengths, step: lengths // 2,
}


@pytest.mark.parametrize("name", WRONG_KEYS)
def test_noise_keyed_by_anything_else_would_be_noticed(name: str) -> None:
    """Negative control: noise that comes again at another position."""
    counts = count_texts(50_000, SEEDED, key=WRONG_KEYS[name])
    assert deviation(counts, expected_texts()) > 5 * BOUND


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("block", by_position),
        ("block", WRONG_KEYS["the place in the step"]),
        ("token", WRONG_KEYS["the place in the step"]),
    ],
    ids=["block, the position", "block, the place", "token, the place"],
)
def test_drafts_of_other_rules_must_not_have_such_noise(rule: str, key: Key) -> None:
    """Negative control: their decisions have revealed something about noise that comes again.

    The token rule is not listed with the position: it decides about one draft of each position.
    """
    torch.manual_seed(0)
    counts = count_texts(50_000, rule, seeded=True, key=key)
    assert deviation(counts, expected_texts()) > 5 * BOUND


@pytest.mark.parametrize("rule", ["token", "block"])
def test_one_hot_drafts_may_be_cut_off_by_a_grammar(rule: str) -> None:
    torch.manual_seed(0)
    counts = count_texts(300_000, rule, forbidden=1, drafts=GREEDY)
    assert abs(deviation(counts, expected_texts(forbidden=1))) < BOUND


@pytest.mark.parametrize("rule", ["token", "block"])
def test_sampled_drafts_of_other_rules_may_not(rule: str) -> None:
    """Negative control: why drafts of requests with structured output are not drawn."""
    torch.manual_seed(0)
    counts = count_texts(50_000, rule, forbidden=1)
    assert deviation(counts, expected_texts(forbidden=1)) > 5 * BOUND


# What ends drafts knows no rule; by day the rule that decides about all drafts together.
@pytest.mark.parametrize("rule", [pytest.param("token", marks=pytest.mark.nightly), "block"])
def test_sampled_drafts_may_end_by_what_is_known_before_each(rule: str) -> None:
    """As a DSpark head's confidences decide it (``control/confidence.py``)."""
    torch.manual_seed(0)
    counts = count_texts(1_000_000, rule, seeded=False, ends_at=1)
    assert abs(deviation(counts, expected_texts())) < BOUND


@pytest.mark.parametrize("rule", ["token", "block"])
def test_but_not_by_the_drafts_themselves(rule: str) -> None:
    """Negative control: a confidence that knows its own draft."""
    torch.manual_seed(0)
    counts = count_texts(50_000, rule, seeded=False, ends_at=1, looks_ahead=True)
    assert deviation(counts, expected_texts()) > 5 * BOUND


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("rule", ["token", "block", SEEDED])
def test_drafts_are_rejected_and_accepted_on_the_way(rule: str, backend: str) -> None:
    """Without both, nothing is drafted again and the chain shows nothing."""
    torch.manual_seed(0)
    texts = Texts.start(5_000, first_seed=0 if rule == SEEDED else None)
    texts.step(rule, backend)
    accepted = torch.bincount(texts.lengths - 2, minlength=NUM_DRAFTS + 1) / 5_000
    assert (accepted > 0.1).all()
    assert LENGTH > NUM_DRAFTS


# By day the reference without a grammar: tests/ops/test_verify_seeded.py compares both backends.
@pytest.mark.parametrize(
    ("forbidden", "backend"),
    [
        (None, "cpu"),
        (1, "cpu"),
        (None, "reference"),
        pytest.param(1, "reference", marks=pytest.mark.nightly),
    ],
)
def test_texts_of_seeds_are_the_same_however_drafts_are_made(
    forbidden: int | None, backend: str
) -> None:
    """Also if there are none, which is what an engine without speculation writes."""

    def texts(drafts: str) -> torch.Tensor:
        # The noise of a thousand stays in the processor's cache.
        return torch.cat(
            [
                Texts.start(1000, seed, drafts=drafts, forbidden=forbidden).finish(SEEDED, backend)
                for seed in range(7, 20_007, 1000)
            ]
        )

    found = [texts(drafts) for drafts in DRAFTS]
    assert all(torch.equal(texts, found[0]) for texts in found[1:])
    assert len(found[0].unique(dim=0)) > 7


def test_drafts_with_the_verifiers_noise_are_accepted_more_often() -> None:
    """Than drafts with noise that is fresh each time, as the token rule and block rule need it."""
    accepted = {}
    for drafts in (SAMPLED, FRESH):
        texts = Texts.start(50_000, first_seed=0, drafts=drafts)
        texts.finish(SEEDED)
        accepted[drafts] = texts.num_accepted
    assert accepted[SAMPLED] > 1.5 * accepted[FRESH]
    # Nearly as often as by the token rule; one draft cannot be accepted more often than by that.
    torch.manual_seed(0)
    others = Texts.start(50_000)
    others.finish("token")
    assert accepted[SAMPLED] > 0.9 * others.num_accepted


def test_texts_of_seeds_repeat_alone_and_beside_others() -> None:
    alone = [Texts.start(1, seed).finish(SEEDED)[-1].tolist() for seed in range(20)]
    beside = [Texts.start(5, seed - 4).finish(SEEDED)[-1].tolist() for seed in range(4, 20)]
    assert beside == alone[4:]
    assert len(set(map(tuple, alone))) > 5
