"""Random cases of ``verify_sample`` for comparing backends: every argument in every form.

The requests of a case share vocabulary, dtype, rule and the kinds of logits, filters and drafts;
each has its own parameters. Nothing but the seed decides what a case is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import torch

from tests.ops.batches import DTYPES, Arguments, with_wide_stride

VOCABULARIES = (
    *(1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257),
    *(500, 511, 512, 513, 1000, 1003, 1024, 2047, 2048, 2049, 3001, 4096, 4999, 5000),
)
KINDS = (
    *("normal", "normal", "peaked", "flat", "equal", "coarse", "tied at the top", "broken"),
    "huge",
)
DRAFTS = ("one-hot", "near", "near", "equal", "other", "sparse", "broken")
# What a draft's distribution should not hold, and numbers that are easily taken wrong.
BROKEN = (
    *(float("nan"), float("nan"), float("inf"), float("-inf"), -0.3, -1e-40, 1.5, 3e38),
    *(0.0, -0.0, 1e-45, 1e-40),
)
TEMPERATURES = (0.0, 1e-4, 0.05, 0.3, 0.6, 0.8, 1.0, 1.0, 1.3, 2.0, 100.0)
TOP_PS = (1.0, 1e-6, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.9999)
MIN_PS = (0.0, 1e-5, 0.01, 0.05, 0.1, 0.5, 1.0)
FILTERS = ("top_k", "top_p", "min_p")
JUST_BELOW_ONE = 1 - 2**-53

T = TypeVar("T")


class Numbers:
    """Random numbers from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def pick(self, values: tuple[T, ...]) -> T:
        return values[self.integer(0, len(values) - 1)]

    def happens(self, chance: float) -> bool:
        return float(torch.rand((), generator=self.generator)) < chance

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)


def parity_cases(
    count: int,
    seed: int,
    *,
    max_vocab: int = 5000,
    max_requests: int = 6,
    max_drafts: int = 5,
    **fixed: Any,
) -> Iterator[Arguments]:
    """Make ``count`` sets of arguments of ``verify_sample``, the same ones for the same seed.

    Args:
        count: number of cases.
        seed: of all of them.
        max_vocab: largest vocabulary; small ones are as frequent as large ones.
        max_requests: most requests of a case.
        max_drafts: most drafts of a request.
        fixed: choices that are not left to chance: ``vocab_size``, ``dtype``, ``rule``, ``kind``
            (one of KINDS), ``drafts`` (one of DRAFTS), ``filters`` (a tuple of names).
    """
    for index in range(count):
        numbers = Numbers(seed * 1_000_003 + index)
        yield make_case(numbers, max_vocab, max_requests, max_drafts, fixed)


def make_case(
    numbers: Numbers, max_vocab: int, max_requests: int, max_drafts: int, fixed: dict[str, Any]
) -> Arguments:
    """Make one case, see :func:`parity_cases`."""
    vocab = numbers.pick(tuple(size for size in VOCABULARIES if size <= max_vocab))
    kind, drafts = numbers.pick(KINDS), numbers.pick(DRAFTS)
    dtype, rule = numbers.pick(DTYPES), numbers.pick(("token", "block"))
    filters = tuple(name for name in FILTERS if numbers.happens(0.5))
    vocab, kind = fixed.get("vocab_size", vocab), fixed.get("kind", kind)
    drafts, dtype = fixed.get("drafts", drafts), fixed.get("dtype", dtype)
    filters, rule = fixed.get("filters", filters), fixed.get("rule", rule)

    lengths = [numbers.integer(0, max_drafts) for _ in range(numbers.integer(1, max_requests))]
    num_rows = sum(lengths) + len(lengths)
    logits = make_logits(numbers, kind, num_rows, vocab).to(dtype)
    arguments = {
        "logits": with_wide_stride(logits) if numbers.happens(0.3) else logits,
        "cu_num_draft_tokens": torch.tensor(lengths).cumsum(0).int(),
        "max_draft_len": max(lengths) + numbers.integer(0, 1),
        **make_parameters(numbers, len(lengths), vocab, filters),
        "rule": rule,
    }
    request = torch.repeat_interleave(torch.tensor(lengths))
    own_rows = torch.arange(sum(lengths)) + request
    scores = (
        make_finite(logits[own_rows]) / arguments["temperature"][request].clamp(min=0.1)[:, None]
    )
    probs = make_draft_probs(numbers, drafts, scores)
    arguments["draft_token_ids"] = make_drafts(numbers, probs)
    if drafts == "broken":
        probs = break_probs(numbers, probs, arguments["draft_token_ids"])
    if drafts != "one-hot":
        arguments["draft_probs"] = probs
    arguments["accept_uniform"] = make_uniforms(numbers, sum(lengths))
    arguments["sample_uniform"] = make_uniforms(numbers, len(lengths))
    return with_gaps(arguments) if numbers.happens(0.2) else arguments


def make_logits(numbers: Numbers, kind: str, num_rows: int, vocab: int) -> torch.Tensor:
    """Return logits of one of the KINDS, float32 [num_rows, vocab]."""
    noise = numbers.normal(num_rows, vocab)
    shift = numbers.pick((0.0, 0.0, 20.0, -300.0))
    if kind in ("normal", "broken"):
        logits = 2 * noise + shift
    elif kind == "peaked":
        logits = 3 * noise + 8 * (noise == noise.amax(dim=-1, keepdim=True))
    elif kind == "flat":
        logits = 0.01 * noise + shift
    elif kind == "equal":
        logits = torch.full_like(noise, shift)
    elif kind == "huge":
        logits = noise * numbers.pick((1e3, 1e37))
    elif kind == "coarse":
        logits = (noise * 2).round() / 2 + shift
    else:
        logits = noise.clamp(max=0.5)
    if kind == "broken":
        fate = numbers.uniform(num_rows, vocab)
        logits[fate < 0.2] = float("-inf")
        logits[fate > 0.9] = float("nan")
        logits[(fate > 0.5) & (fate < 0.5 + 0.3 / vocab)] = float("inf")
        row_fate = numbers.uniform(num_rows)
        logits[row_fate < 0.1] = float("-inf")
        logits[row_fate > 0.9] = float("nan")
    return logits


def make_finite(logits: torch.Tensor) -> torch.Tensor:
    """Return the logits in float32 with nothing in them that a softmax cannot take."""
    return logits.float().nan_to_num(nan=-50.0, neginf=-50.0, posinf=50.0).clamp(-400, 400)


def make_draft_probs(numbers: Numbers, drafts: str, scores: torch.Tensor) -> torch.Tensor:
    """Return a draft's distributions of one of the DRAFTS, float32 [num_drafts, vocab]."""
    noise = numbers.normal(*scores.shape)
    if drafts == "equal":
        return scores.softmax(dim=-1)
    if drafts == "other":
        return (2 * noise).softmax(dim=-1)
    probs = (scores + 0.5 * noise).softmax(dim=-1)
    if drafts == "sparse":
        kept = probs >= probs.topk(min(3, probs.shape[-1])).values[:, -1:]
        probs = probs * kept / (probs * kept).sum(dim=-1, keepdim=True)
    return probs


def make_drafts(numbers: Numbers, probs: torch.Tensor) -> torch.Tensor:
    """Return drafts, int32 [num_drafts]: mostly sampled from ``probs``, some argmax, any or -1."""
    num_drafts, vocab = probs.shape
    if num_drafts == 0:
        return torch.empty(0, dtype=torch.int32)
    fate = numbers.uniform(num_drafts)
    drawn = torch.multinomial(probs.double(), 1, generator=numbers.generator)[:, 0]
    any_token = torch.randint(vocab, (num_drafts,), generator=numbers.generator)
    drafts = torch.where(fate < 0.6, drawn, probs.argmax(dim=-1))
    drafts = torch.where(fate > 0.9, any_token, drafts)
    return drafts.masked_fill(fate > 0.97, -1).int()


def break_probs(
    numbers: Numbers,
    probs: torch.Tensor,  # [num_drafts, vocab]
    drafts: torch.Tensor,  # [num_drafts]
) -> torch.Tensor:
    """Put BROKEN values in: in all of a row, at the draft's own token, here and there, nowhere."""
    num_drafts, vocab = probs.shape
    if num_drafts == 0:
        return probs
    picked = torch.randint(len(BROKEN), probs.shape, generator=numbers.generator)
    fate, each = numbers.uniform(num_drafts)[:, None], numbers.uniform(num_drafts, vocab)
    whole = fate < 0.25
    own = (fate < 0.5) & (torch.arange(vocab) == drafts[:, None])
    some = (fate > 0.5) & (fate < 0.85) & (each < 0.3)
    picked = torch.where(whole, picked[:, :1], picked)
    return torch.where(whole | own | some, torch.tensor(BROKEN)[picked], probs)


def make_parameters(
    numbers: Numbers, num_reqs: int, vocab: int, filters: tuple[str, ...]
) -> Arguments:
    """Return temperatures and filters, one value per request, those that are off among them."""
    top_ks = (-1, 0, 1, 2, 5, 50, max(vocab - 1, 1), vocab, vocab + 5)

    def values(choices: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([numbers.pick(choices) for _ in range(num_reqs)], dtype=dtype)

    parameters = {
        "temperature": values(TEMPERATURES, torch.float32),
        "top_k": values(top_ks, torch.int32),
        "top_p": values(TOP_PS, torch.float32),
        "min_p": values(MIN_PS, torch.float32),
    }
    kept = ("temperature", *filters)
    return {name: value for name, value in parameters.items() if name in kept}


def make_uniforms(numbers: Numbers, count: int) -> torch.Tensor:
    """Return uniforms, float64 [count]; one in fifty is an end of [0, 1)."""
    uniforms, fate = numbers.uniform(count), numbers.uniform(count)
    uniforms[fate < 0.01] = 0.0
    return uniforms.masked_fill_(fate > 0.99, JUST_BELOW_ONE)


def with_gaps(arguments: Arguments) -> Arguments:
    """Return the same case as views of wider tensors: only logits need be contiguous in a row."""

    def spread(name: str, value: Any) -> Any:
        if name == "logits" or not isinstance(value, torch.Tensor):
            return value
        wide = torch.stack([value, torch.full_like(value, 77)], dim=-1)
        return wide[..., 0]

    return {name: spread(name, value) for name, value in arguments.items()}


def one_request(arguments: Arguments, index: int) -> Arguments:
    """Cut one request out of a case: what it is must not depend on the others."""
    ends = [0, *arguments["cu_num_draft_tokens"].tolist()]
    start, end = ends[index : index + 2]
    spans = {
        "logits": slice(start + index, end + index + 1),
        **dict.fromkeys(("draft_token_ids", "draft_probs", "accept_uniform"), slice(start, end)),
    }
    alone = {
        name: value[spans.get(name, slice(index, index + 1))]
        if isinstance(value, torch.Tensor)
        else value
        for name, value in arguments.items()
    }
    alone["cu_num_draft_tokens"] = torch.tensor([end - start], dtype=torch.int32)
    return alone
