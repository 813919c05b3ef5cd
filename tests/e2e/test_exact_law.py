"""Many continuations of an engine against exact probabilities: EAGLE, sampled drafts, no seed.

``EXACT_LAW_CONTINUATIONS=2000000 … -m pytest -s -m nightly tests/e2e/test_exact_law.py`` runs as
many with each rule; docs/losslessness.md has the figures of such a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.drafts import watch
from tests.e2e.exact_law import (
    ENGINE,
    LEAST_P,
    NUM_DRAFTS,
    VOCAB,
    compare,
    count_texts,
    least_chance,
    num_continuations,
    probabilities,
    report,
    windows,
    write_models,
)
from vllm_ascend_spec.methods.loops.sampling import DraftSampler


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder: Path = tmp_path_factory.mktemp("twelve")
    return write_models(folder)


@pytest.fixture(scope="module")
def probs(models: tuple[str, str]) -> torch.Tensor:
    return probabilities(models[0])


def make(make_engine: Any, models: tuple[str, str], rule: str) -> Any:
    target, head = models
    spec = {
        "method": "eagle",
        "model": head,
        "num_speculative_tokens": NUM_DRAFTS,
        "draft_sample_method": "probabilistic",
    }
    options = {"ascend_spec": {"verify_rule": rule}}
    return make_engine(spec, model=target, additional_config=options, **ENGINE)


@pytest.mark.nightly
@pytest.mark.parametrize("rule", ["block", "token"])
def test_texts_have_the_targets_exact_probabilities(
    rule: str, make_engine: Any, models: tuple[str, str], probs: torch.Tensor
) -> None:
    llm = make(make_engine, models, rule)
    with watch(llm) as seen:
        found = compare(count_texts(llm, num_continuations()), probs)
    print(f"\n{rule} rule, {num_continuations()} continuations, {seen.acceptance}\n{report(found)}")
    assert least_chance(found) > LEAST_P, report(found)
    # Drafts were accepted and rejected at every place, or the comparison shows nothing.
    accepted = seen.acceptance
    assert all(count > accepted.num_drafts / 50 for count in accepted.accepted_per_position)
    assert (accepted.rate or 1) < 0.9


@pytest.mark.nightly
@pytest.mark.parametrize("rule", ["block", "token"])
def test_distributions_that_are_a_little_wrong_would_be_noticed(
    rule: str, make_engine: Any, models: tuple[str, str], probs: torch.Tensor, monkeypatch: Any
) -> None:
    """Negative control: a fifth of the continuations; the verifier is told flatter laws by 5%."""
    stock = DraftSampler.draw

    def flatter(self: Any, logits: torch.Tensor) -> Any:
        tokens, law = stock(self, logits)
        return tokens, torch.lerp(law, torch.full_like(law, 1 / VOCAB), 0.05)

    monkeypatch.setattr(DraftSampler, "draw", flatter)
    llm = make(make_engine, models, rule)
    found = compare(count_texts(llm, num_continuations() // 5), probs)
    print(f"\n{report(found)}")
    assert least_chance(found) < LEAST_P


def test_the_comparison_is_right(probs: torch.Tensor) -> None:
    """Draws of the exact probabilities pass, and ones of others do not."""
    generator = torch.Generator().manual_seed(0)
    chances = []
    for _ in range(50):
        drawn = torch.multinomial(probs.flatten(), 20_000, replacement=True, generator=generator)
        counts = torch.bincount(drawn, minlength=probs.numel()).reshape(probs.shape)
        chances += [chance for _, _, chance in compare(counts, probs).values()]
    chances = torch.tensor(chances)
    assert len(chances) == 50 * len(list(windows()))
    assert 0.4 < chances.mean() < 0.6
    assert 0.02 < (chances < 0.05).double().mean() < 0.09
    other = probs.clone()
    other[:, :, 0] *= 1.1
    drawn = torch.multinomial(other.flatten(), 100_000, replacement=True, generator=generator)
    counts = torch.bincount(drawn, minlength=probs.numel()).reshape(probs.shape)
    assert least_chance(compare(counts, probs)) < LEAST_P
    assert probs.shape == (VOCAB,) * 4
