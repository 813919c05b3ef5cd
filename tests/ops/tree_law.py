"""The exact distribution of the text that ``verify_tree`` makes, without drawing a random number.

The noise of a position decides the samples of all rows that are for this position. So its law is a
law of tuples of samples, and a few values of the noise with the right weights stand for all of it:
:func:`cubature` finds values under which the race of ``verify_seeded`` gives each row exactly the
target's distribution. (That the race does so under the true law of the noise is shown by
``test_seeded_integral.py``.) The reference then runs with every combination of these values, each
position having its own, until all texts are long enough; a step takes the noise of the positions
after the step before it. The weights of the combinations that make a text add up to its
probability, which has to be the target's own.

Rules that need other random numbers are enumerated step by step, :func:`texts_of_steps`.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from tests.ops.batches import int32
from tests.ops.enumeration import Joint, Prefix, model_noise
from tests.ops.oracle import Sampling, target_distribution
from vllm_ascend_spec.ops.verify_seeded import reference as seeded
from vllm_ascend_spec.ops.verify_tree import verify_tree

# Values of the noise that are tried for each token of each race.
TRIED = 3
# How far probabilities may be from the target's.
TOLERANCE = 1e-9
# Position of the first token.
START = 40

# The outputs of one step after a text, and their probabilities.
Step = Callable[["Case", Prefix], Joint]


@dataclass(frozen=True)
class Case:
    """A target, a draft and a tree.

    Attributes:
        vocab_size: at most 5.
        parents: of the tree's nodes, of which there are at most 6.
        horizon: tokens of a text.
        sampling: the request's parameters.
        seed: of the models.
    """

    vocab_size: int
    parents: Prefix
    horizon: int
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0

    def target_logits(self, prefix: Prefix) -> list[float]:
        """Return the target's logits after ``prefix``, a different row for each."""
        return (1.5 * model_noise("target", self.seed, prefix, self.vocab_size)).tolist()

    def target(self, prefix: Prefix) -> list[float]:
        return target_distribution(self.target_logits(prefix), self.sampling)

    def draft(self, prefix: Prefix) -> list[float]:
        """Return the draft's distribution after ``prefix``."""
        own = model_noise("draft", self.seed, prefix, self.vocab_size)
        return (torch.tensor(self.target_logits(prefix)) + own).double().softmax(-1).tolist()

    def likeliest(self, prefix: Prefix) -> list[int]:
        """Return all tokens, those that the draft thinks likely first."""
        draft = self.draft(prefix)
        return sorted(range(self.vocab_size), key=lambda token: -draft[token])

    def nodes(self, text: Prefix) -> list[Prefix]:
        """Return the text up to each node's token: the children of a node hold the likeliest."""
        prefixes: list[Prefix] = []
        for node, parent in enumerate(self.parents):
            above = text if parent < 0 else prefixes[parent]
            rank = self.parents[:node].count(parent)
            prefixes.append((*above, self.likeliest(above)[rank]))
        return prefixes


@dataclass(frozen=True)
class Noises:
    """Values of a position's noise, float64 [num_values, vocab_size], and their weights."""

    values: torch.Tensor
    weights: np.ndarray


def cubature(targets: np.ndarray, seed: int) -> Noises:
    """Return noise under which races have exactly these laws.

    Args:
        targets: float64 [num_races, num_tokens]; all races have the noise in common.
        seed: of the values.
    """
    (num_races, size), numbers = targets.shape, np.random.default_rng(seed)
    targets = np.maximum(targets, 1e-300)
    tried = numbers.exponential(size=(TRIED, num_races, size, size))
    # In some of these, each token of each race has the noise with which it just wins.
    own = np.arange(size)
    tried[1:, :, own, own] = (1 - 1e-9) * (tried / targets[:, None])[1:].min(-1) * targets
    tried = tried.reshape(-1, size)
    winners = (tried[:, None] / targets).argmin(-1)  # [num_tried, num_races]
    cells, first, counts = np.unique(winners, axis=0, return_index=True, return_counts=True)
    weights = counts / counts.sum()
    for _ in range(20_000):
        worst = 0.0
        for race, target in enumerate(targets):
            chances = np.bincount(cells[:, race], weights, minlength=size)
            worst = max(worst, abs(chances - target).max())
            weights = weights * (target / np.maximum(chances, 1e-300))[cells[:, race]]
        if worst < 1e-12:
            return Noises(torch.from_numpy(tried[first]), weights)
    raise AssertionError(f"no weights were found, off by {worst}; try more values")


def noises_of(case: Case) -> list[Noises]:
    """Return the noise of each position of a text."""
    return [
        cubature(
            np.array(
                [
                    case.target(prefix)
                    for prefix in itertools.product(range(case.vocab_size), repeat=place)
                ]
            ),
            seed=place,
        )
        for place in range(case.horizon)
    ]


def texts_of_op(case: Case, monkeypatch: pytest.MonkeyPatch) -> Joint:
    """Return the joint distribution of the texts that the reference makes."""
    noises = noises_of(case)
    combinations = list(itertools.product(*(range(len(n.weights)) for n in noises)))
    weights = [
        math.prod(n.weights[i] for n, i in zip(noises, chosen, strict=True))
        for chosen in combinations
    ]
    # What lies beyond the last position decides rows that no text comes to.
    beyond = torch.ones(len(combinations), len(case.parents) + 1, case.vocab_size)
    index = torch.tensor(combinations)
    known = torch.cat(
        [torch.stack([n.values[i] for n, i in zip(noises, index.T, strict=True)], 1), beyond], 1
    )
    monkeypatch.setattr(seeded, "noise", lambda seeds, at, _: known[seeds, at - START])
    texts: list[Prefix] = [()] * len(combinations)
    while short := [i for i, text in enumerate(texts) if len(text) < case.horizon]:
        for i, output in zip(short, _outputs(case, [texts[i] for i in short], short), strict=True):
            texts[i] = (*texts[i], *output)[: case.horizon]
    joint: Joint = defaultdict(float)
    for text, weight in zip(texts, weights, strict=True):
        joint[text] += weight
    return joint


def _outputs(case: Case, texts: list[Prefix], seeds: list[int]) -> Iterator[Prefix]:
    """Run the reference once; yield what each request puts out."""
    trees = {text: case.nodes(text) for text in set(texts)}
    logits = {
        text: torch.tensor([case.target_logits(prefix) for prefix in (text, *trees[text])])
        for text in trees
    }
    n, s = len(texts), case.sampling
    tokens, counts, _ = verify_tree(
        torch.cat([logits[text] for text in texts]),
        int32([prefix[-1] for text in texts for prefix in trees[text]]),
        (torch.arange(1, n + 1) * len(case.parents)).int(),
        len(case.parents),
        parents=int32(list(case.parents) * n),
        temperature=torch.full((n,), s.temperature),
        top_k=torch.full((n,), s.top_k, dtype=torch.int32),
        top_p=torch.full((n,), s.top_p),
        seeds=torch.tensor(seeds),
        positions=torch.tensor([START + len(text) for text in texts]),
        backend="reference",
    )
    for row, count in zip(tokens.tolist(), counts.tolist(), strict=True):
        yield tuple(row[:count])


def texts_of_steps(case: Case, step: Step) -> Joint:
    """Return the joint distribution of the texts that a rule makes, step after step."""
    texts: Joint = defaultdict(float, {(): 1.0})
    for length in range(case.horizon):
        for text in [text for text in texts if len(text) == length]:
            weight = texts.pop(text)
            for output, chance in step(case, text).items():
                texts[(*text, *output)[: case.horizon]] += weight * chance
    return texts


def texts_of_target(case: Case) -> Joint:
    """Return the target's own joint distribution."""
    return texts_of_steps(
        case, lambda case, text: {(token,): p for token, p in enumerate(case.target(text))}
    )


def distance(texts: Joint, case: Case) -> float:
    """Return the total variation between the texts' distribution and the target's."""
    target = texts_of_target(case)
    return sum(abs(texts.get(key, 0.0) - target.get(key, 0.0)) for key in {*texts, *target}) / 2
