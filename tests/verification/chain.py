"""Requests over several verifications in a row, on a chain so small that every text is counted.

The target's and the draft's next token depend on the last one only. A step drafts, verifies and
goes on from where it ended, by the code of the engine: :class:`DraftSampler`,
:func:`draw_uniforms`, :func:`verify_sample`. What is counted is the first ``LENGTH`` tokens of each
request, whose probabilities are known exactly. A token may be forbidden, as by a grammar: drafts
are then cut off before it, as by vLLM's scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from vllm_ascend_spec.methods.loops import sampling as drafting
from vllm_ascend_spec.ops import verify_sample
from vllm_ascend_spec.verification.uniforms import draw_uniforms

VOCAB, NUM_DRAFTS, LENGTH = 3, 2, 3
CPU = torch.device("cpu")
# Far enough apart that most blocks are cut, near enough that parts of them are accepted.
TARGET = torch.tensor([[0.55, 0.30, 0.15], [0.20, 0.30, 0.50], [0.40, 0.20, 0.40]])
DRAFT = torch.tensor([[0.20, 0.35, 0.45], [0.55, 0.15, 0.30], [0.15, 0.60, 0.25]])


@dataclass
class Texts:
    """The texts of a batch of requests.

    Attributes:
        tokens: int64 [num_reqs, LENGTH + NUM_DRAFTS + 1], the first column is what all start from.
        lengths: int64 [num_reqs], tokens of each, the first included.
        generators: the request's own, one each where requests have seeds.
        forbidden: the token that the target may not say.
        draws: whether drafts are sampled; else each is the argmax.
        ends_at: a token: drafts end before the first one that is this token, if ``looks_ahead``,
            and else before the first one whose previous token is.
        looks_ahead: whether it depends on a draft itself whether the draft is verified.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    generators: list[torch.Generator] = field(default_factory=list)
    forbidden: int | None = None
    draws: bool = True
    ends_at: int | None = None
    looks_ahead: bool = False

    @classmethod
    def start(cls, num_reqs: int, first_seed: int | None = None, **options: Any) -> Texts:
        """Return empty texts; with ``first_seed`` each request has a seed of its own."""
        tokens = torch.zeros((num_reqs, LENGTH + NUM_DRAFTS + 1), dtype=torch.int64)
        seeds = [] if first_seed is None else range(first_seed, first_seed + num_reqs)
        own = [torch.Generator().manual_seed(seed) for seed in seeds]
        return cls(tokens, torch.ones(num_reqs, dtype=torch.int64), own, **options)

    def step(self, rule: str, backend: str | None = None) -> None:
        """Draft and verify once for every request that is not done."""
        rows = (self.lengths <= LENGTH).nonzero()[:, 0]
        own = {i: self.generators[row] for i, row in enumerate(rows.tolist()) if self.generators}
        path, probs = self._draft(rows, own)
        output, count = self._verify(path, probs, own, rule, backend)
        for offset in range(NUM_DRAFTS + 1):
            given = offset < count
            place = (self.lengths[rows] + offset).clamp(max=self.tokens.shape[1] - 1)
            self.tokens[rows[given], place[given]] = output[given, offset].long()
        self.lengths[rows] += count

    def _draft(
        self,
        rows: torch.Tensor,  # [num_active]
        own: dict[int, torch.Generator],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the last token and its drafts [num_active, NUM_DRAFTS + 1], and their laws."""
        metadata: Any = SimpleNamespace(temperature=torch.ones(len(rows)), generators=own)
        one_hot = () if self.draws else range(len(rows))
        sampler = drafting.DraftSampler(metadata, self.lengths[rows] - 1, one_hot)
        path, probs = [self.tokens[rows, self.lengths[rows] - 1]], []
        for _ in range(NUM_DRAFTS):
            draft, law = sampler.draw(DRAFT.log()[path[-1]])
            path.append(draft)
            probs.append(law)
        return torch.stack(path, dim=1), torch.stack(probs, dim=1)

    def _verify(
        self,
        path: torch.Tensor,  # [num_active, NUM_DRAFTS + 1]
        probs: torch.Tensor,  # [num_active, NUM_DRAFTS, VOCAB]
        own: dict[int, torch.Generator],
        rule: str,
        backend: str | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        num_reqs, drafts = len(path), path[:, 1:]
        kept = (drafts != (-1 if self.forbidden is None else self.forbidden)).cumprod(dim=1) == 1
        if self.ends_at is not None:
            decisive = drafts if self.looks_ahead else path[:, :-1]
            kept &= (decisive != self.ends_at).cumprod(dim=1) == 1
        counts = kept.sum(dim=1)
        rows = torch.arange(NUM_DRAFTS + 1) <= counts[:, None]
        uniforms = draw_uniforms(counts.tolist(), own, CPU, NUM_DRAFTS)
        return verify_sample(
            target_table(self.forbidden).log().float()[path[rows]],
            drafts[kept].int(),
            counts.cumsum(0).int(),
            NUM_DRAFTS,
            temperature=torch.ones(num_reqs),
            draft_probs=probs[kept],
            accept_uniform=uniforms.accept,
            sample_uniform=uniforms.sample,
            rule=rule,
            backend=backend,
        )


def count_texts(
    num_reqs: int, rule: str, *, seeded: bool, batch: int = 50_000, **options: Any
) -> torch.Tensor:
    """Return how often each text of LENGTH tokens was put out, int64 [VOCAB ** LENGTH]."""
    counts = torch.zeros(VOCAB**LENGTH, dtype=torch.int64)
    weights = VOCAB ** torch.arange(LENGTH - 1, -1, -1)
    for start in range(0, num_reqs, batch):
        size = min(batch, num_reqs - start)
        texts = Texts.start(size, start if seeded else None, **options)
        while (texts.lengths <= LENGTH).any():
            texts.step(rule)
        index = (texts.tokens[:, 1 : LENGTH + 1] * weights).sum(dim=1)
        counts += torch.bincount(index, minlength=VOCAB**LENGTH)
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
