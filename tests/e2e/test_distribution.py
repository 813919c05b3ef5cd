"""Sampled through the engine, speculation leaves the distribution of the text as it is.

The exact proof is in tests/ops/test_enumeration.py; this shows that proposer, runner and verifier
hand each other the right things (the drafts' distributions, above all).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from vllm import SamplingParams

from tests.e2e.conftest import SPECS, WAYS_TO_DRAFT, drafting
from vllm_ascend_spec.proposers.sampling import DraftSampler

SAMPLES = 4096
ARGUMENTS = {"max_num_seqs": 64, "block_size": 32}
# A two-sample chi-square of this many degrees of freedom stays below it in all but 1 of 10^5 runs.
SIGMAS = 4.5


def sample(llm: Any, prompt: str) -> Counter[tuple[int, ...]]:
    """Count the second and third token of many continuations; the first is never a draft."""
    parameters = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=3, ignore_eos=True)
    torch.manual_seed(1)
    outputs = llm.generate([prompt] * SAMPLES, parameters, use_tqdm=False)
    return Counter(tuple(output.outputs[0].token_ids[1:]) for output in outputs)


def excess(ours: Counter[Any], theirs: Counter[Any]) -> float:
    """Return how far, in standard deviations, two samples of equal size are apart."""
    pooled = ours + theirs
    frequent = [key for key, count in pooled.items() if count >= 20]
    cells = [(ours[key], theirs[key]) for key in frequent]
    cells.append((SAMPLES - sum(a for a, _ in cells), SAMPLES - sum(b for _, b in cells)))
    chi_square = sum((a - b) ** 2 / (a + b) for a, b in cells if a + b)
    freedom = len(cells) - 1
    assert freedom >= 20
    return (chi_square - freedom) / (2 * freedom) ** 0.5


@pytest.fixture(scope="module")
def expected(make_engine: Any, prompts: list[str]) -> Counter[tuple[int, ...]]:
    return sample(make_engine(**ARGUMENTS), prompts[3])


@pytest.mark.parametrize(("method", "drafts"), WAYS_TO_DRAFT)
def test_distribution_is_that_of_the_target(
    method: str, drafts: str, make_engine: Any, prompts: list[str], expected: Counter[Any]
) -> None:
    spec = {**drafting(method, drafts), "num_speculative_tokens": 2}
    actual = sample(make_engine(spec, **ARGUMENTS), prompts[3])
    assert excess(actual, expected) < SIGMAS


def test_wrong_draft_probabilities_would_be_noticed(
    make_engine: Any, prompts: list[str], expected: Counter[Any], monkeypatch: Any
) -> None:
    """Negative control: the verifier is told that the drafts were drawn uniformly."""
    stock = DraftSampler.draw

    def wrong(self: Any, logits: torch.Tensor) -> Any:
        tokens, probs = stock(self, logits)
        return tokens, torch.full_like(probs, 1 / probs.shape[1])

    monkeypatch.setattr(DraftSampler, "draw", wrong)
    spec = {
        **SPECS["eagle"],
        "num_speculative_tokens": 2,
        "draft_sample_method": "probabilistic",
    }
    actual = sample(make_engine(spec, **ARGUMENTS), prompts[3])
    assert excess(actual, expected) > 3 * SIGMAS
