"""What ``benchmarks verify`` measures: kinds of request, sizes, and the batches made for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from vllm_ascend_spec.ops.verify_seeded import verify_seeded

NUM_DRAFTS = 4  # per request
TEMPERATURE = 0.8
BOOSTED = 50
SEED = 20240311
POSITION = 100
# Which drafts are rejected is random, so the cost is measured over at least this many requests.
MIXED_REQUESTS = 32
# Several times the last-level cache that one core reaches.
COLD_BYTES = 128 * 2**20
# Enough to reach COLD_BYTES with one request and 32,000 16-bit logits per row. Smaller vocabularies
# would need more batches, and far more time.
MOST_BATCHES = 1024


@dataclass(frozen=True)
class RequestKind:
    """A kind of request.

    Attributes:
        title: name in tables.
        temperature: 0 is greedy.
        top_k: 0 is off.
        top_p: 1 is off.
        sampled_drafts: whether drafts come with the distributions they were sampled from.
        rule: how drafts are accepted: "token" and "block" are rules of ``verify_sample``, "seeded"
            is ``verify_seeded``.
        num_drafts: drafts of a request.
        peaked: whether logits are a language model's, or normally distributed only.
    """

    title: str
    temperature: float = TEMPERATURE
    top_k: int = 0
    top_p: float = 1.0
    sampled_drafts: bool = False
    rule: str = "token"
    num_drafts: int = NUM_DRAFTS
    peaked: bool = True

    @property
    def acceptances(self) -> tuple[str, ...]:
        """Default acceptances; the block rule has "mixed", too, as rejections make it work more."""
        return ("all", "mixed") if self.rule == "block" else ("all",)


KINDS: dict[str, RequestKind] = {
    "greedy": RequestKind("greedy", temperature=0.0),
    "plain": RequestKind("sampled"),
    "top-p": RequestKind("sampled, top-p 0.95", top_p=0.95),
    "top-k-top-p": RequestKind("sampled, top-k 50, top-p 0.95", top_k=50, top_p=0.95),
    "sampled-drafts": RequestKind("sampled, sampled drafts", sampled_drafts=True),
    "block": RequestKind("block rule", rule="block"),
    "block-sampled-drafts": RequestKind(
        "block rule, sampled drafts", sampled_drafts=True, rule="block"
    ),
    "seeded": RequestKind("seeded", rule="seeded"),
    "seeded-top-p": RequestKind("seeded, top-p 0.95", top_p=0.95, rule="seeded"),
    "seeded-top-k-top-p": RequestKind(
        "seeded, top-k 50, top-p 0.95", top_k=50, top_p=0.95, rule="seeded"
    ),
    # More tokens than elsewhere may win.
    "seeded-spread": RequestKind("seeded, normal logits", rule="seeded", peaked=False),
    # vLLM's sampler divides by the temperature in place: with 1 it can be called again.
    "seeded-no-drafts": RequestKind(
        "seeded, no drafts", temperature=1.0, rule="seeded", num_drafts=0
    ),
}
# "all": every draft is accepted, so every row must be read. "mixed": random numbers decide;
# greedy requests use none, so they accept 2, 3, 4, 0 and 1 drafts in turn.
ACCEPTANCES = ("all", "mixed")


@dataclass(frozen=True)
class VerifyCase:
    """One measured case: a row of the results."""

    kind: str
    vocab: int
    batch: int
    acceptance: str = "all"

    @property
    def num_rows(self) -> int:
        """Rows of logits: one per draft and one more per request."""
        return self.batch * (KINDS[self.kind].num_drafts + 1)

    def as_dict(self) -> dict[str, Any]:
        """Return it for a JSON record."""
        return {
            "kind": self.kind,
            "vocab": self.vocab,
            "batch": self.batch,
            "acceptance": self.acceptance,
        }

    def __str__(self) -> str:
        return f"{self.kind} V={self.vocab} B={self.batch} accepted={self.acceptance}"


class VerifyBatch(NamedTuple):
    """The input tensors of a case, the same for every peer.

    Attributes:
        logits: [num_reqs * (num_drafts + 1), vocab_size], a request's rows together.
        draft_token_ids: int32 [num_reqs * num_drafts].
        cu_num_draft_tokens: int32 [num_reqs], inclusive.
        temperature: float32 [num_reqs].
        top_k: int32 [num_reqs] or None.
        top_p: float32 [num_reqs] or None.
        draft_probs: float32 [num_reqs * num_drafts, vocab_size] or None.
        accept_uniform: float64 [num_reqs * num_drafts].
        sample_uniform: float64 [num_reqs].
        seeds: int64 [num_reqs], for ``verify_seeded``.
        positions: int64 [num_reqs], for ``verify_seeded``.
    """

    logits: torch.Tensor
    draft_token_ids: torch.Tensor
    cu_num_draft_tokens: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor | None
    top_p: torch.Tensor | None
    draft_probs: torch.Tensor | None
    accept_uniform: torch.Tensor
    sample_uniform: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor

    @property
    def num_drafts(self) -> int:
        """Drafts of a request; all have as many."""
        return len(self.draft_token_ids) // len(self.temperature)


def plan_cases(
    kinds: tuple[str, ...],
    vocabs: tuple[int, ...],
    batches: tuple[int, ...],
    acceptances: tuple[str, ...] | None,
) -> list[VerifyCase]:
    """Return the cases in the order they run; ``acceptances`` None takes each kind's own."""
    return [
        VerifyCase(kind, vocab, batch, acceptance)
        for vocab in vocabs
        for batch in batches
        for kind in kinds
        for acceptance in acceptances or KINDS[kind].acceptances
    ]


def make_logits(num_rows: int, vocab: int, generator: torch.Generator) -> torch.Tensor:
    """Return logits like a language model's, float32 [num_rows, vocab].

    They are normally distributed, with a few dozen tokens raised so that the argmax has about half
    of the probability.
    """
    logits = torch.randn(num_rows, vocab, generator=generator).mul_(2.0)
    tokens = torch.randint(0, vocab, (num_rows, BOOSTED), generator=generator)
    raised = torch.rand(num_rows, BOOSTED, generator=generator).square_().mul_(16.0)
    return logits.scatter_add_(1, tokens, raised)


def make_spread_logits(num_rows: int, vocab: int, generator: torch.Generator) -> torch.Tensor:
    """Return logits of which no few tokens have most of the probability, float32."""
    return torch.randn(num_rows, vocab, generator=generator).mul_(3.0)


def count_batches(case: VerifyCase, element_size: int, *, cold: bool) -> int:
    """Return how many batches of a case take turns.

    Args:
        case: with "mixed" acceptance, one small batch would have too few random rejections.
        element_size: bytes per logit.
        cold: whether the logits of all batches together must exceed the caches.
    """
    wanted = 1
    if case.acceptance == "mixed":
        wanted = math.ceil(MIXED_REQUESTS / case.batch)
    if cold:
        size = case.num_rows * case.vocab * element_size
        wanted = max(wanted, math.ceil(COLD_BYTES / size))
    return min(wanted, MOST_BATCHES)


def make_batch(
    case: VerifyCase, dtype: torch.dtype, device: torch.device, index: int = 0
) -> VerifyBatch:
    """Make the tensors of the ``index``-th batch of ``case``, the same in each run."""
    kind = KINDS[case.kind]
    generator = torch.Generator().manual_seed(SEED + case.vocab + case.batch + 10**6 * index)
    make = make_logits if kind.peaked else make_spread_logits
    logits = make(case.num_rows, case.vocab, generator).to(dtype)
    drafted = logits.view(case.batch, kind.num_drafts + 1, case.vocab)[:, :-1].flatten(0, 1)
    draft_probs = _draft_probs(drafted, generator) if kind.sampled_drafts else None
    drafts = _drafts(case, drafted, draft_probs, generator, index * case.batch)
    uniform = torch.rand(len(drafts), generator=generator, dtype=torch.float64)
    batch = VerifyBatch(
        logits=logits,
        draft_token_ids=drafts.int(),
        cu_num_draft_tokens=torch.arange(1, case.batch + 1, dtype=torch.int32) * kind.num_drafts,
        temperature=torch.full((case.batch,), kind.temperature),
        top_k=torch.full((case.batch,), kind.top_k, dtype=torch.int32) if kind.top_k else None,
        top_p=torch.full((case.batch,), kind.top_p) if kind.top_p < 1 else None,
        draft_probs=draft_probs,
        # A uniform of 0 accepts every draft that the target gives any mass.
        accept_uniform=uniform if case.acceptance == "mixed" else torch.zeros_like(uniform),
        sample_uniform=torch.rand(case.batch, generator=generator, dtype=torch.float64),
        seeds=SEED + torch.arange(case.batch) + index * case.batch,
        positions=torch.full((case.batch,), POSITION),
    )
    if kind.rule == "seeded" and case.acceptance == "all":
        batch = batch._replace(draft_token_ids=_own_samples(batch))
    return VerifyBatch(*(None if tensor is None else tensor.to(device) for tensor in batch))


def _own_samples(batch: VerifyBatch) -> torch.Tensor:
    """Return drafts that are the samples of their rows, int32 [num_drafts]."""
    width = batch.num_drafts + 1
    tokens = []
    # One by one: the reference backend, where there is no other, takes many times a row's memory.
    for row, logits in enumerate(batch.logits):
        request, place = divmod(row, width)
        own = slice(request, request + 1)
        (sampled, _) = verify_seeded(
            logits[None],
            torch.empty(0, dtype=torch.int32),
            torch.zeros(1, dtype=torch.int32),
            0,
            temperature=batch.temperature[own],
            top_k=None if batch.top_k is None else batch.top_k[own],
            top_p=None if batch.top_p is None else batch.top_p[own],
            seeds=batch.seeds[own],
            positions=batch.positions[own] + place,
        )
        tokens.append(sampled[0])
    return torch.cat(tokens).view(-1, width)[:, :-1].flatten()


def _draft_probs(drafted: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a draft model's distributions: the target's logits with noise."""
    noise = torch.randn(drafted.shape, generator=generator).mul_(0.7)
    return noise.add_(drafted).div_(TEMPERATURE).softmax(-1)


def _drafts(
    case: VerifyCase,
    drafted: torch.Tensor,  # [num_drafts, vocab_size], the rows that judge drafts
    draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
    generator: torch.Generator,
    first_request: int,
) -> torch.Tensor:
    if draft_probs is not None:
        return torch.multinomial(draft_probs, 1, generator=generator)[:, 0]
    best = drafted.argmax(-1)
    if KINDS[case.kind].temperature > 0 or case.acceptance == "all":
        return best
    position = torch.arange(NUM_DRAFTS)  # of greedy requests
    request = first_request + torch.arange(case.batch)[:, None]
    right = (position < (request + 2) % (NUM_DRAFTS + 1)).flatten()
    return torch.where(right, best, (best + 1) % case.vocab)


def describe(batch: VerifyBatch) -> dict[str, float]:
    """Return how peaked the rows are, on which top-p and the acceptance of drafts depend."""
    rows = batch.logits[: NUM_DRAFTS + 1].float().div(TEMPERATURE).softmax(-1)
    before = rows.sort(-1, descending=True).values.cumsum(-1)
    return {
        "mean_max_prob": round(float(rows.amax(-1).mean()), 3),
        "median_tokens_in_top_p_0.95": int((before < 0.95).sum(-1).median()) + 1,
    }
