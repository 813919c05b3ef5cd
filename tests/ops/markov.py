"""A target and a draft over 50 tokens whose next token depends on the last one only.

So a million requests through ``verify_sample`` take seconds, and the exact probability of every
pair of tokens is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.ops.batches import Arguments
from tests.ops.oracle import Sampling, target_distribution
from vllm_ascend_spec.ops import verify_sample

VOCAB = 50
NUM_DRAFTS = 3
START = 0
# Cells with less are counted together: their counts are not normally distributed.
LEAST_EXPECTED = 10.0


@dataclass(frozen=True)
class Models:
    """The two models and the request's parameters.

    Attributes:
        sampled: whether drafts are sampled; else each is the draft model's argmax.
        sampling: of the target.
        rule: of the verification.
        seed: of the models and of all draws.
    """

    sampled: bool
    sampling: Sampling
    rule: str
    seed: int = 0

    def tables(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return target logits, target and draft probabilities, each [last token, next token]."""
        generator = torch.Generator().manual_seed(self.seed)
        logits = 2 * torch.randn(VOCAB, VOCAB, generator=generator)
        noise = torch.randn(VOCAB, VOCAB, generator=generator)
        target = [target_distribution(row, self.sampling) for row in logits.tolist()]
        draft = (logits / self.sampling.temperature + 1.2 * noise).softmax(dim=-1)
        return logits, torch.tensor(target, dtype=torch.float64), draft


def count_pairs(models: Models, num_samples: int, batch: int, backend: str) -> torch.Tensor:
    """Return how often each pair of tokens followed START, int64 [VOCAB, VOCAB].

    Where a request puts out one token only, the target draws the second, as in the next step.
    """
    logits, target, draft = models.tables()
    generator = torch.Generator().manual_seed(models.seed + 1)
    counts = torch.zeros(VOCAB * VOCAB, dtype=torch.int64)
    for _ in range(num_samples // batch):
        arguments = make_batch(models, logits, draft, batch, generator)
        tokens, lengths = verify_sample(**arguments, backend=backend)
        first = tokens[:, 0].long()
        own = draw(target, first, generator)
        second = torch.where(lengths > 1, tokens[:, 1].long(), own)
        counts += torch.bincount(first * VOCAB + second, minlength=VOCAB * VOCAB)
    return counts.view(VOCAB, VOCAB)


def draw(table: torch.Tensor, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw from a row of ``table`` [VOCAB, VOCAB] for each of ``rows`` [size]."""
    # One increasing sequence of all rows' cumulative distributions, one unit apart.
    cumulative = table.double().cumsum(dim=-1)
    offset = torch.arange(VOCAB)[:, None]
    ends = (cumulative / cumulative[:, -1:] + offset).flatten()
    uniform = torch.rand(rows.shape[0], generator=generator, dtype=torch.float64)
    return torch.searchsorted(ends, rows + uniform, right=True) - rows * VOCAB


def make_batch(
    models: Models,
    logits: torch.Tensor,  # [VOCAB, VOCAB]
    draft: torch.Tensor,  # [VOCAB, VOCAB]
    size: int,
    generator: torch.Generator,
) -> Arguments:
    """Return the arguments of ``verify_sample`` for fresh drafts and uniforms."""
    states = [torch.full((size,), START)]
    argmax = draft.argmax(dim=-1)
    for _ in range(NUM_DRAFTS):
        last = states[-1]
        states.append(draw(draft, last, generator) if models.sampled else argmax[last])
    path = torch.stack(states, dim=1)
    s = models.sampling
    return {
        "logits": logits[path].flatten(0, 1),
        "draft_token_ids": path[:, 1:].flatten().int(),
        "cu_num_draft_tokens": (torch.arange(1, size + 1) * NUM_DRAFTS).int(),
        "max_draft_len": NUM_DRAFTS,
        "temperature": torch.full((size,), s.temperature),
        "top_k": torch.full((size,), s.top_k, dtype=torch.int32) if s.top_k else None,
        "top_p": torch.full((size,), s.top_p) if s.top_p < 1 else None,
        "min_p": torch.full((size,), s.min_p) if s.min_p else None,
        "draft_probs": draft[path[:, :-1]].flatten(0, 1) if models.sampled else None,
        "accept_uniform": torch.rand(size * NUM_DRAFTS, generator=generator, dtype=torch.float64),
        "sample_uniform": torch.rand(size, generator=generator, dtype=torch.float64),
        "rule": models.rule,
    }


def deviations(models: Models, counts: torch.Tensor) -> tuple[float, float]:
    """Return chi-square of the first tokens and of the pairs, in standard deviations."""
    _, target, _ = models.tables()
    pairs = target[START][:, None] * target
    return deviation(counts.sum(dim=1), pairs.sum(dim=1)), deviation(counts, pairs)


def deviation(counts: torch.Tensor, probs: torch.Tensor) -> float:
    """Return how far chi-square is from its mean, in standard deviations.

    Raises:
        AssertionError: something of probability 0 was counted.
    """
    observed, expected = counts.flatten().double(), probs.flatten() * counts.sum()
    assert not (observed[expected == 0] > 0).any(), "an impossible token was put out"
    rare = expected < LEAST_EXPECTED
    observed = torch.cat([observed[~rare], observed[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    kept = expected > 0
    chi_square = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = int(kept.sum()) - 1
    return float((chi_square - freedom) / (2 * freedom) ** 0.5)
