"""``verify_seeded``'s reference has the target's law exactly: its noise is integrated out.

The probability that a token is the sample is an integral over the noise of all tokens. For each
value of the others' noise the reference is asked up to which noise of its own the token is the
sample; the exponential distribution then gives the chance of that exactly. Over the others it is
integrated by Gauss and Legendre's rule, in the probabilities of their noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from vllm_ascend_spec.ops.verify_sample.reference import target_scores
from vllm_ascend_spec.ops.verify_seeded import reference

# Points for each token's noise, by vocabulary; halvings of the interval of a threshold.
POINTS = {2: 200, 3: 100, 4: 32}
HALVINGS = 60
# Where two of the others are equally good the integrand has an edge, which costs digits.
TOLERANCE = {2: 1e-12, 3: 1e-6, 4: 1e-4}

Sample = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Let the reference take its noise from the end of this list."""
    known: list[torch.Tensor] = []
    monkeypatch.setattr(reference, "noise", lambda seeds, positions, size: known[-1])
    return known


def quadrature(size: int, points: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield exponential noise [num_points, size] and its weights, for one token after another.

    The noise of the token itself is missing: its column is zero.
    """
    nodes, weights = np.polynomial.legendre.leggauss(points)
    # Noise of at least E has the chance (1 - x)^4 (1 + 4 x): the integrand is smooth in x up to 1.
    x = (nodes + 1) / 2
    exponential = -4 * np.log1p(-x) - np.log1p(4 * x)
    density = 20 * x * (1 - x) ** 3
    grid = torch.tensor(list(itertools.product(exponential, repeat=size - 1)))
    weight = torch.tensor(list(itertools.product(weights / 2 * density, repeat=size - 1)))
    for token in range(size):
        noise = torch.cat([grid[:, :token], grid.new_zeros(len(grid), 1), grid[:, token:]], dim=1)
        yield noise, weight.prod(dim=1)


def integrated(size: int, sample: Sample) -> torch.Tensor:
    """Return the probability of each token, float64 [size].

    Args:
        size: number of tokens.
        sample: returns the samples of noise [num_points, size].
    """
    chances = []
    for token, (noise, weight) in enumerate(quadrature(size, POINTS[size])):
        low = torch.full((len(noise),), -60.0, dtype=torch.float64)  # logarithms of noise
        high = torch.full_like(low, 12.0)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            noise[:, token] = middle.exp()
            wins = sample(noise) == token
            low, high = torch.where(wins, middle, low), torch.where(wins, high, middle)
        chances.append((weight * -torch.expm1(-low.exp())).sum())
    return torch.stack(chances)


CASES: list[tuple[list[float], dict[str, Any]]] = [
    ([0.5, 0.5], {}),
    ([0.9, 0.1], {}),
    ([0.5, 0.1, 0.4], {}),
    ([0.2, 0.7, 0.1], {"temperature": 0.7}),
    ([0.4, 0.3, 0.2, 0.1], {}),
    ([0.4, 0.3, 0.2, 0.1], {"top_k": 3}),
    ([0.4, 0.3, 0.2, 0.1], {"top_p": 0.65}),
    ([0.4, 0.3, 0.2, 0.1], {"min_p": 0.6, "temperature": 1.5}),
]


def rows_of(
    probs: list[float], count: int, options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, Any, Any, Any]:
    """Return logits and parameters of ``count`` equal rows, in the reference's order."""

    def each(name: str, dtype: torch.dtype) -> torch.Tensor | None:
        return torch.full((count,), options[name], dtype=dtype) if name in options else None

    logits = torch.tensor(probs).log().expand(count, -1)
    temperature = torch.full((count,), options.get("temperature", 1.0))
    filters = each("top_k", torch.int32), each("top_p", torch.float32), each("min_p", torch.float32)
    return logits, temperature, *filters


@pytest.mark.parametrize(("probs", "options"), CASES)
def test_probabilities_are_the_targets(
    probs: list[float], options: dict[str, Any], given: list[torch.Tensor]
) -> None:
    def sample(noise: torch.Tensor) -> torch.Tensor:
        given.append(noise)
        none = torch.zeros(len(noise), dtype=torch.int64)
        rows = rows_of(probs, len(noise), options)
        return reference.sample_rows(*rows, seeds=none, positions=none)

    expected = target_scores(*rows_of(probs, 1, options)).softmax(dim=-1)[0]
    assert (integrated(len(probs), sample) - expected).abs().max() < TOLERANCE[len(probs)]


def test_another_race_would_be_noticed() -> None:
    """Negative control: noise that is compared with other weights than the probabilities."""
    probs = torch.tensor([0.5, 0.1, 0.4], dtype=torch.float64)

    def sample(noise: torch.Tensor) -> torch.Tensor:
        return (noise / probs**1.001).argmin(dim=-1)

    assert (integrated(3, sample) - probs).abs().max() > 10 * TOLERANCE[3]
