"""Requests over several verifications in a row, on a chain so small that every text is counted.

The target's and the draft's next token depend on the last one only. A step drafts, verifies and
goes on from where it ended, by the code of the engine: :class:`DraftSampler`,
:func:`verify_seeded`, :func:`verify_sample`. What is counted is the first ``LENGTH`` tokens of each
request, whose probabilities are known exactly. A token may be forbidden, as by a grammar: drafts
are then cut off before it, as by vLLM's scheduler.

Why the noise of a request with a seed need not be fresh where a position is drafted again: its
token there is the target's sample with the noise of that position, whatever the draft is. The
sample is a function of the text before it and of that noise. The text before it is a function of
the noise of earlier positions alone, so both are independent, and the sample has the target's law.
Drafts decide only how many samples one step puts out. The token rule and the block rule are
different: the token is the draft itself if it is accepted. So its law needs a draft that is
independent of all that earlier decisions revealed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from vllm_ascend_spec.methods.loops.sampling import DraftSampler
from vllm_ascend_spec.ops import verify_sample, verify_seeded
from vllm_ascend_spec.ops.row_noise import RowNoise

VOCAB, NUM_DRAFTS, LENGTH = 3, 2, 3
# Far enough apart that most blocks are cut, near enough that parts of them are accepted.
TARGET = torch.tensor([[0.55, 0.30, 0.15], [0.20, 0.30, 0.50], [0.40, 0.20, 0.40]])
DRAFT = torch.tensor([[0.20, 0.35, 0.45], [0.55, 0.15, 0.30], [0.15, 0.60, 0.25]])
# Rule of requests with a seed.
SEEDED = "seeded"
# How drafts are made: sampled (with the verifier's noise if there are seeds), sampled with noise of
# their own, the argmax, or not at all.
SAMPLED, FRESH, GREEDY, NONE = DRAFTS = ("sampled", "fresh", "greedy", "none")
# Apart by more than the number of requests.
OTHER_SEEDS = 1 << 40


def by_position(
    lengths: torch.Tensor,  # [num_active]
    step: int,
) -> torch.Tensor:
    """Return the positions by which noise is keyed: those of the next tokens."""
    return lengths


Key = Callable[[torch.Tensor, int], torch.Tensor]


@dataclass
class Texts:
    """The texts of a batch of requests.

    Attributes:
        tokens: int64 [num_reqs, LENGTH + NUM_DRAFTS + 1], the first column is what all start from.
        lengths: int64 [num_reqs], tokens of each, the first included.
        seeds: int64 [num_reqs], the request's own; None if they have none.
        forbidden: the token that the target may not say.
        drafts: how drafts are made, one of ``DRAFTS``.
        key: returns the positions by which noise is keyed, from the lengths and the step.
        steps: number of steps so far.
        num_accepted: number of drafts accepted so far, of all requests.
        ends_at: a token: drafts end before the first one that is this token, if ``looks_ahead``,
            and else before the first one whose previous token is.
        looks_ahead: whether it depends on a draft itself whether the draft is verified.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    seeds: torch.Tensor | None = None
    forbidden: int | None = None
    drafts: str = SAMPLED
    key: Key = by_position
    steps: int = 0
    num_accepted: int = 0
    ends_at: int | None = None
    looks_ahead: bool = False

    @classmethod
    def start(cls, num_reqs: int, first_seed: int | None = None, **options: Any) -> Texts:
        """Return empty texts; with ``first_seed`` each request has a seed of its own."""
        tokens = torch.zeros((num_reqs, LENGTH + NUM_DRAFTS + 1), dtype=torch.int64)
        seeds = None if first_seed is None else torch.arange(first_seed, first_seed + num_reqs)
        return cls(tokens, torch.ones(num_reqs, dtype=torch.int64), seeds, **options)

    @property
    def are_done(self) -> bool:
        return bool((self.lengths > LENGTH).all())

    def finish(self, rule: str, backend: str | None = None) -> torch.Tensor:
        """Run until all are done; return the texts, int64 [num_reqs, LENGTH]."""
        while not self.are_done:
            self.step(rule, backend)
        return self.tokens[:, 1 : LENGTH + 1]

    def step(self, rule: str, backend: str | None = None) -> None:
        """Draft and verify once for every request that is not done."""
        rows = (self.lengths <= LENGTH).nonzero()[:, 0]
        noise = self._noise(rows)
        path, probs = self._draft(rows, noise)
        output, count = self._verify(path, probs, noise, rule, backend)
        for offset in range(NUM_DRAFTS + 1):
            given = offset < count
            place = (self.lengths[rows] + offset).clamp(max=self.tokens.shape[1] - 1)
            self.tokens[rows[given], place[given]] = output[given, offset].long()
        self.lengths[rows] += count
        self.num_accepted += int((count - 1).sum())
        self.steps += 1

    def _noise(
        self,
        rows: torch.Tensor,  # [num_active]
    ) -> RowNoise | None:
        if self.seeds is None:
            return None
        return RowNoise(self.seeds[rows], self.key(self.lengths[rows], self.steps), None)

    def _draft(
        self,
        rows: torch.Tensor,  # [num_active]
        noise: RowNoise | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the last token and its drafts [num_active, NUM_DRAFTS + 1], and their laws."""
        metadata: Any = SimpleNamespace(
            temperature=torch.ones(len(rows)), top_k=None, top_p=None, generators={}
        )
        if noise is not None and self.drafts == FRESH:
            noise = noise._replace(seeds=noise.seeds + OTHER_SEEDS * (self.steps + 1))
        if self.drafts == GREEDY:
            noise = None
        one_hot = range(len(rows)) if self.drafts == GREEDY else ()
        sampler = DraftSampler(metadata, noise, one_hot)
        path, probs = [self.tokens[rows, self.lengths[rows] - 1]], []
        for _ in range(NUM_DRAFTS):
            draft, law = sampler.draw(DRAFT.log()[path[-1]])
            probs.append(DRAFT[path[-1]] if law is None else law)
            path.append(draft)
        return torch.stack(path, dim=1), torch.stack(probs, dim=1)

    def _verify(
        self,
        path: torch.Tensor,  # [num_active, NUM_DRAFTS + 1]
        probs: torch.Tensor,  # [num_active, NUM_DRAFTS, VOCAB]
        noise: RowNoise | None,
        rule: str,
        backend: str | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        num_reqs, drafts = len(path), path[:, 1:]
        kept = (drafts != (-1 if self.forbidden is None else self.forbidden)).cumprod(dim=1) == 1
        if self.drafts == NONE:
            kept = torch.zeros_like(kept)
        if self.ends_at is not None:
            decisive = drafts if self.looks_ahead else path[:, :-1]
            kept &= (decisive != self.ends_at).cumprod(dim=1) == 1
        counts = kept.sum(dim=1)
        rows = torch.arange(NUM_DRAFTS + 1) <= counts[:, None]
        batch = (
            target_table(self.forbidden).log().float()[path[rows]],
            drafts[kept].int(),
            counts.cumsum(0).int(),
            NUM_DRAFTS,
        )
        temperature = torch.ones(num_reqs)
        if rule == SEEDED:
            assert noise is not None
            own: Any = {"seeds": noise.seeds, "positions": noise.positions}
            return verify_seeded(*batch, temperature=temperature, **own, backend=backend)
        return verify_sample(
            *batch,
            temperature=temperature,
            draft_probs=probs[kept],
            accept_uniform=torch.rand(len(batch[1]), dtype=torch.float64),
            sample_uniform=torch.rand(num_reqs, dtype=torch.float64),
            rule=rule,
            backend=backend,
        )


def count_texts(
    num_reqs: int,
    rule: str,
    *,
    seeded: bool | None = None,
    batch: int = 100_000,
    **options: Any,
) -> torch.Tensor:
    """Return how often each text of LENGTH tokens was put out, int64 [VOCAB ** LENGTH].

    Args:
        num_reqs: number of requests.
        rule: ``token``, ``block`` or ``seeded``.
        seeded: whether requests have seeds; by default if the rule needs them.
        batch: number of requests of a step.
        options: attributes of :class:`Texts`.
    """
    counts = torch.zeros(VOCAB**LENGTH, dtype=torch.int64)
    weights = VOCAB ** torch.arange(LENGTH - 1, -1, -1)
    has_seeds = rule == SEEDED if seeded is None else seeded
    for start in range(0, num_reqs, batch):
        size = min(batch, num_reqs - start)
        texts = Texts.start(size, start if has_seeds else None, **options).finish(rule)
        counts += torch.bincount((texts * weights).sum(dim=1), minlength=VOCAB**LENGTH)
    return counts


def target_table(forbidden: int | None = None) -> torch.Tensor:
    """Return the target's probabilities, float64 [last token, next token]."""
    table = TARGET.double().clone()
    if forbidden is not None:
        table[:, forbidden] = 0.0
    return table / table.sum(dim=1, keepdim=True)


def expected_texts(forbidden: int | None = None) -> torch.Tensor:
    """Return the probability of each text under the target, float64 [VOCAB ** LENGTH]."""
    table = target_table(forbidden)
    probs, last = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    for _ in range(LENGTH):
        probs = (probs[:, None] * table[last]).flatten()
        last = torch.arange(VOCAB).repeat(len(last))
    return probs
