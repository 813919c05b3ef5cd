"""Many requests over several steps, with rejections between, write what the target writes.

``tests/ops`` judges one verification. Here what one step leaves to the next counts too: above all
whether the noise of a draft is fresh where a position is drafted again.
"""

from __future__ import annotations

import pytest
import torch

from tests.ops.markov import deviation
from tests.verification.chain import LENGTH, NUM_DRAFTS, Texts, count_texts, expected_texts
from vllm_ascend_spec.methods.loops import sampling

# By chance once in 30,000 numbers, were they normal; the seeds are fixed.
BOUND = 5.0


# A generator for each request takes its time; the fault below is seen in a sixth of these.
@pytest.mark.parametrize(
    ("num_reqs", "seeded"), [(1_000_000, False), (300_000, True)], ids=["free", "seeded"]
)
@pytest.mark.parametrize("rule", ["token", "block"])
def test_texts_are_distributed_as_the_targets(rule: str, num_reqs: int, seeded: bool) -> None:
    torch.manual_seed(0)
    counts = count_texts(num_reqs, rule, seeded=seeded)
    assert abs(deviation(counts, expected_texts())) < BOUND


def keyed_by_position(seed: int, first: int, offset: int) -> int:
    """Return one seed for a position, whichever step drafts it."""
    return sampling._mix64(seed * 0x9E3779B97F4A7C15 + first + offset + 1) >> 1


def test_noise_keyed_by_the_position_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the block rule has learned about noise that comes again."""
    monkeypatch.setattr(sampling, "draft_seed", keyed_by_position)
    counts = count_texts(50_000, "block", seeded=True)
    assert deviation(counts, expected_texts()) > 5 * BOUND


@pytest.mark.parametrize("rule", ["token", "block"])
def test_one_hot_drafts_may_be_cut_off_by_a_grammar(rule: str) -> None:
    torch.manual_seed(0)
    counts = count_texts(300_000, rule, seeded=False, forbidden=1, draws=False)
    assert abs(deviation(counts, expected_texts(forbidden=1))) < BOUND


@pytest.mark.parametrize("rule", ["token", "block"])
def test_sampled_drafts_may_not(rule: str) -> None:
    """Negative control: why drafts of requests with structured output are not drawn."""
    torch.manual_seed(0)
    counts = count_texts(50_000, rule, seeded=False, forbidden=1)
    assert deviation(counts, expected_texts(forbidden=1)) > 5 * BOUND


@pytest.mark.parametrize("rule", ["token", "block"])
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
@pytest.mark.parametrize("rule", ["token", "block"])
def test_drafts_are_rejected_and_accepted_on_the_way(rule: str, backend: str) -> None:
    """Without both, nothing is drafted again and the chain shows nothing."""
    torch.manual_seed(0)
    texts = Texts.start(5_000, first_seed=0)
    texts.step(rule, backend)
    accepted = torch.bincount(texts.lengths - 2, minlength=NUM_DRAFTS + 1) / 5_000
    assert (accepted > 0.1).all()
    assert LENGTH > NUM_DRAFTS


@pytest.mark.parametrize("rule", ["token", "block"])
def test_seeded_texts_repeat_alone_and_beside_others(rule: str) -> None:
    def tokens(num_reqs: int, first_seed: int) -> list[int]:
        texts = Texts.start(num_reqs, first_seed)
        while (texts.lengths <= LENGTH).any():
            texts.step(rule)
        return texts.tokens[-1, 1 : LENGTH + 1].tolist()

    alone = [tokens(1, seed) for seed in range(20)]
    assert [tokens(5, seed - 4) for seed in range(4, 20)] == alone[4:]
    assert len(set(map(tuple, alone))) > 5
