"""A million requests over 50 tokens have the target's distribution; small mistakes show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.ops import wrong_rules as wrong
from tests.ops.batches import RULES, SAMPLE_BACKENDS
from tests.ops.markov import START, VOCAB, Models, count_pairs, deviation, deviations
from tests.ops.oracle import Sampling
from vllm_ascend_spec.ops.registry import PREFERENCE
from vllm_ascend_spec.ops.verify_sample import OP

PLAIN = Sampling()
FILTERED = Sampling(temperature=0.8, top_k=20, top_p=0.95)
FASTEST = next(name for name in PREFERENCE["cpu"] if OP.status("cpu").get(name) == "ready")
# By chance once in 30,000 numbers, were they normal; the seeds are fixed.
BOUND = 5.0


@pytest.fixture(scope="module", params=SAMPLE_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def kinds_of_requests() -> Iterator[Any]:
    """Yield sampling, drafts and rules; by day each pair of them once, or twice.

    tests/ops/test_enumeration.py has all of them by day, and the exact distribution of each.
    """
    for sampling, sampled, rule in itertools.product((PLAIN, FILTERED), (False, True), RULES):
        by_day = (rule == "block") == ((sampling == FILTERED) == sampled)
        name = f"{'plain' if sampling == PLAIN else 'filtered'}-{sampled}-{rule}"
        marks = () if by_day else pytest.mark.nightly
        yield pytest.param(sampling, sampled, rule, id=name, marks=marks)


@pytest.mark.parametrize(("sampling", "sampled", "rule"), list(kinds_of_requests()))
def test_tokens_and_pairs_are_distributed_as_the_targets(
    backend: str, sampling: Sampling, sampled: bool, rule: str
) -> None:
    models = Models(sampled, sampling, rule)
    samples = 1_000_000 if backend == FASTEST else 50_000
    for number in deviations(models, count_pairs(models, samples, 25_000, backend)):
        assert abs(number) < BOUND


def by_night(*values: Any) -> Any:
    """Return a mistake with drafts that are certain; test_enumeration.py has it by day."""
    return pytest.param(*values, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("piece", "mistake", "models"),
    [
        ("_final_token", wrong.recover_from_target, Models(True, PLAIN, "token")),
        by_night("_final_token", wrong.recover_from_target, Models(False, PLAIN, "block")),
        ("_final_token", wrong.recover_by_the_token_rule, Models(True, PLAIN, "block")),
        ("token", wrong.too_often("token"), Models(True, PLAIN, "token")),
        ("block", wrong.too_often("block"), Models(True, PLAIN, "block")),
        ("block", wrong.by_products_of_uniforms, Models(True, FILTERED, "block")),
        ("block", wrong.by_products_with_token_residual, Models(True, PLAIN, "block")),
        by_night("block", wrong.by_products_with_token_residual, Models(False, PLAIN, "block")),
        ("block", wrong.by_weights_alone, Models(True, PLAIN, "block")),
        ("block", wrong.with_unlimited_weights, Models(True, PLAIN, "block")),
        ("block", wrong.up_to_the_first_refused, Models(True, PLAIN, "block")),
        by_night("block", wrong.up_to_the_first_refused, Models(False, PLAIN, "block")),
    ],
)
def test_wrong_rules_exceed_the_bound(
    monkeypatch: pytest.MonkeyPatch, piece: str, mistake: Any, models: Models
) -> None:
    wrong.put_in(monkeypatch, piece, mistake)
    assert max(deviations(models, count_pairs(models, 100_000, 25_000, "reference"))) > BOUND


def test_impossible_tokens_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong.put_in(monkeypatch, "target_probs", wrong.without_top_p)
    models = Models(True, FILTERED, "token")
    with pytest.raises(AssertionError, match="impossible token"):
        deviations(models, count_pairs(models, 25_000, 25_000, "reference"))


def test_deviation_of_the_target_itself_is_small() -> None:
    _, target, _ = Models(True, PLAIN, "token").tables()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(target[START], 100_000, replacement=True, generator=generator)
    assert abs(deviation(torch.bincount(drawn, minlength=VOCAB), target[START])) < BOUND
