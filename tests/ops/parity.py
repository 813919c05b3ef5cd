"""Whether a backend's result is right up to rounding, by the contract of ``verify_sample``.

Every decision of the op compares a number with a threshold, and a backend that adds in another
order or in float32 may see either move a little. :func:`judge` accepts a result that differs
from the reference's only if each decision that led to it is one the reference makes with its
uniform, top-p or min-p moved by no more than ``EPSILON``:

* a draft is accepted, or not, by the token rule: ``u q < p``, with u moved by ``EPSILON``;
* by the block rule: ``u < h_i``. ``h_i = R / (R + 1 - w)`` is the quotient of what remains when
  all later drafts are rejected, which has the probability ``R + 1 - w``; an error of ``EPSILON``
  in R and w moves it by ``EPSILON / (R + 1 - w)``, and its part of the output by ``EPSILON``;
* the last token lies where the cumulative weights reach ``u`` of their sum, moved by ``EPSILON``;
  of a sum of differences ``w p - q`` by ``EPSILON`` of the mass of p, for there p's rounding
  remains while the sum may be as small as it likes;
* a token outside the target's filters is never right, nor any other token in a greedy request.

Rows whose top-p or min-p falls between two tokens within ``EPSILON`` have several possible
distributions; the extremes over them bound each threshold.

Use :func:`assert_right`; the cases to use it on are made by ``tests/ops/cases.py``.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vllm_ascend_spec.ops import verify_greedy, verify_sample
from vllm_ascend_spec.ops.verify_sample.reference import target_probs

EPSILON = 2e-6
# Smallest normal float32, with room for a sum: a probability below may be nothing to a backend.
VANISHING = 1e-36

Arguments = dict[str, Any]
Result = tuple[torch.Tensor, torch.Tensor]


class Outcome(enum.Enum):
    """What a request's result is."""

    EQUAL = "equal"
    TIE = "tie within rounding"
    WRONG = "wrong"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one call.

    Attributes:
        outcomes: of each request.
        complaints: one text per wrong request, or about the result as a whole.
    """

    outcomes: tuple[Outcome, ...]
    complaints: tuple[str, ...]

    def count(self, outcome: Outcome) -> int:
        return self.outcomes.count(outcome)

    @property
    def is_right(self) -> bool:
        return not self.complaints


@dataclass(frozen=True)
class Span:
    """Bounds of a number that rounding may move."""

    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """The distributions that one row may have, float64 [num_variants, vocab_size]."""

    variants: torch.Tensor

    def prob(self, token: int) -> Span:
        column = self.variants[:, token]
        low = float(column.min())
        return Span(0.0 if low < VANISHING else low, float(column.max()))


@dataclass(frozen=True)
class Request:
    """One sampled request: ``rows`` and ``draft_probs`` are tensors [_, vocab_size]."""

    index: int
    rule: str
    drafts: list[int]
    rows: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor | None
    top_p: torch.Tensor | None
    min_p: torch.Tensor | None
    draft_probs: torch.Tensor | None
    accept: list[float]
    sample: float

    @property
    def length(self) -> int:
        """Drafts before the first of -1."""
        return self.drafts.index(-1) if -1 in self.drafts else len(self.drafts)

    def row(self, position: int) -> Row:
        """Return the distributions of one row under all moves of its filters."""
        top_ps, min_ps = _moved(self.top_p, 9, off=1.0), _moved(self.min_p, 3, off=0.0)
        moves = list(itertools.product(top_ps or [None], min_ps or [None]))
        probs = target_probs(
            self.rows[position].expand(len(moves), -1),
            self.temperature.expand(len(moves)),
            None if self.top_k is None else self.top_k.expand(len(moves)),
            torch.tensor([top_p for top_p, _ in moves], dtype=torch.float64) if top_ps else None,
            torch.tensor([min_p for _, min_p in moves], dtype=torch.float64) if min_ps else None,
        )
        return Row(probs.unique(dim=0) if len(moves) > 1 else probs)

    def draft_prob(self, position: int) -> float:
        if self.draft_probs is None:
            return 1.0
        return float(self.draft_probs[position, self.drafts[position]])

    def draft_row(self, position: int) -> torch.Tensor:
        """Return q of one row, float64 [vocab_size]."""
        if self.draft_probs is not None:
            return self.draft_probs[position].double()
        certain = torch.zeros(self.rows.shape[1], dtype=torch.float64)
        certain[self.drafts[position]] = 1.0
        return certain


def _moved(values: torch.Tensor | None, steps: int, *, off: float) -> list[float]:
    """Return a filter's value and its moves; a filter that is off does not move."""
    if values is None:
        return []
    value = float(values)
    if value == off:
        return [value]
    moves = torch.linspace(-EPSILON, EPSILON, steps, dtype=torch.float64).tolist()
    return [min(max(value + move, min(value, 1e-12)), 1.0) for move in moves]


@dataclass(frozen=True)
class Decision:
    """Whether the first i drafts may be accepted and may be refused, and why.

    Attributes:
        accept: whether accepting is right or within rounding.
        reject: the same for rejecting.
        weight: bounds of w_i of the block rule; 1 in the token rule.
        text: the numbers, for the message.
    """

    accept: bool
    reject: bool
    weight: Span
    text: str


def token_decisions(request: Request) -> list[Decision]:
    """Return what the token rule may decide on each draft."""
    decisions = []
    for position in range(request.length):
        u, q = request.accept[position], request.draft_prob(position)
        p = request.row(position).prob(request.drafts[position])
        accept = p.high > 0 and (u - EPSILON) * q < p.high
        reject = p.low == 0 or (u + EPSILON) * q >= p.low
        text = f"u={u:.9g} q={q:.9g} p={p.low:.9g}..{p.high:.9g}"
        decisions.append(Decision(accept, reject, Span(1.0, 1.0), text))
    return decisions


def block_decisions(request: Request) -> list[Decision]:
    """Return what the block rule may decide on the first i drafts, for i from 1."""
    decisions = []
    weight = Span(1.0, 1.0)
    for position in range(request.length):
        u, q = request.accept[position], request.draft_prob(position)
        p = request.row(position).prob(request.drafts[position])
        weight = Span(_grow(weight.low, p.low, q), _grow(weight.high, p.high, q))
        last = position + 1 == request.length
        low = (weight.low, EPSILON) if last else _chance(request, position + 1, weight.low, min)
        high = (weight.high, EPSILON) if last else _chance(request, position + 1, weight.high, max)
        accept = weight.high > 0 and u - high[1] < high[0]
        reject = u + low[1] >= low[0]
        text = f"u={u:.9g} h={low[0]:.9g}..{high[0]:.9g} (±{max(low[1], high[1]):.2g})"
        decisions.append(Decision(accept, reject, weight, text))
    return decisions


def _grow(weight: float, p: float, q: float) -> float:
    if weight == 0 or p == 0:
        return 0.0
    return 1.0 if weight * p >= q else weight * p / q


def _chance(
    request: Request,
    position: int,
    weight: float,
    pick: Callable[[list[tuple[float, float]]], tuple[float, float]],
) -> tuple[float, float]:
    """Return h of the drafts before ``position``, an extreme over its row, and its leeway."""
    q = request.draft_row(position)
    rest = (weight * request.row(position).variants - q).clamp(min=0).sum(dim=-1)
    chances = []
    for remaining in rest.tolist():
        reached = remaining + 1 - weight
        leeway = EPSILON / reached if reached > 0 else 1.0
        chances.append((1.0 if weight >= 1 else remaining / reached, leeway))
    return pick(chances)


def may_follow(request: Request, num_accepted: int, weight: Span, token: int) -> bool:
    """Tell whether ``token`` may be the last one, after ``num_accepted`` drafts."""
    for p in request.row(num_accepted).variants:
        if num_accepted == request.length:
            if _may_be_drawn(p, token, request.sample, EPSILON):
                return True
            continue
        q = request.draft_row(num_accepted)
        for w in {weight.low, weight.high}:
            if _may_correct(w * p, q, token, request):
                return True
    return False


def _may_correct(p: torch.Tensor, q: torch.Tensor, token: int, request: Request) -> bool:
    residual = (p - q).clamp(min=0)
    total = float(residual.sum())
    if request.draft_probs is None:
        # No differences here: p without the draft is as exact as p.
        possible, leeway, nothing = bool(residual[token] > 0), EPSILON * total, VANISHING
    else:
        possible, leeway, nothing = bool(p[token] * (1 + EPSILON) > q[token]), EPSILON, EPSILON
    if possible and _may_be_drawn(residual, token, request.sample, leeway, possible=True):
        return True
    # Where nothing is left but rounding, it decides whether anything is, and p takes its place.
    return total <= nothing and _may_be_drawn(p, token, request.sample, EPSILON)


def _may_be_drawn(
    weights: torch.Tensor, token: int, uniform: float, leeway: float, *, possible: bool = False
) -> bool:
    """Tell whether the cumulative weights reach ``uniform`` of their sum at ``token``."""
    if not (possible or weights[token] > 0):
        return False
    cumulative = weights.cumsum(dim=0)
    goal = uniform * float(cumulative[-1])
    reached = float(cumulative[token])
    return reached - float(weights[token]) <= goal + leeway and reached >= goal - leeway


def complaint_about(request: Request, output: list[int], count: int) -> str | None:
    """Return what is wrong with the result of a sampled request, or None if it is right."""
    return (
        _malformed(request, output, count)
        or _misdecided(request, output[: count - 1])
        or (_mistaken(request, count - 1, output[count - 1]))
    )


def _malformed(request: Request, output: list[int], count: int) -> str | None:
    if not 1 <= count <= len(request.drafts) + 1:
        return f"{count} tokens of {len(request.drafts)} drafts"
    if output[count:] != [-1] * (len(output) - count):
        return "the padding is not -1"
    if output[: count - 1] != request.drafts[: count - 1]:
        return "the tokens before the last are not the drafts"
    if count - 1 > request.length:
        return "a draft of -1 is accepted"
    return None


def _misdecided(request: Request, accepted: list[int]) -> str | None:
    num_accepted, block = len(accepted), request.rule == "block"
    for position, decision in enumerate(DECISIONS[request.rule](request)):
        # The block rule takes the largest i it can; decisions before that do not matter.
        needed = position + 1 == num_accepted if block else position < num_accepted
        if needed and not decision.accept:
            return f"draft {position} is accepted with {decision.text}"
        refused = position >= num_accepted if block else position == num_accepted
        if refused and not decision.reject:
            return f"draft {position} is rejected with {decision.text}"
    return None


def _mistaken(request: Request, num_accepted: int, token: int) -> str | None:
    if not 0 <= token < request.rows.shape[1]:
        return f"token {token} is not in the vocabulary"
    weight = Span(1.0, 1.0)
    if num_accepted > 0:
        weight = DECISIONS[request.rule](request)[num_accepted - 1].weight
    if not may_follow(request, num_accepted, weight, token):
        return f"token {token} does not follow for a sample uniform of {request.sample:.9g}"
    return None


DECISIONS = {"token": token_decisions, "block": block_decisions}


def cut_out(arguments: Arguments, index: int) -> Request:
    """Return one request of a batch."""
    ends = [0, *arguments["cu_num_draft_tokens"].tolist()]
    start, end = ends[index], ends[index + 1]

    def own(name: str) -> torch.Tensor | None:
        values = arguments.get(name)
        return None if values is None else values[index : index + 1]

    probs = arguments.get("draft_probs")
    return Request(
        index=index,
        rule=arguments.get("rule", "token"),
        drafts=arguments["draft_token_ids"][start:end].tolist(),
        rows=arguments["logits"][start + index : end + index + 1],
        temperature=arguments["temperature"][index : index + 1],
        top_k=own("top_k"),
        top_p=own("top_p"),
        min_p=own("min_p"),
        draft_probs=None if probs is None else probs[start:end],
        accept=arguments["accept_uniform"][start:end].tolist(),
        sample=float(arguments["sample_uniform"][index]),
    )


def judge(arguments: Arguments, result: Result) -> Verdict:
    """Judge a result of ``verify_sample``, given with the arguments on the CPU."""
    expected = verify_sample(**{**arguments, "backend": "reference"})
    if problem := _wrong_form(result, expected):
        return Verdict((Outcome.WRONG,) * expected[1].shape[0], (problem,))
    outcomes, complaints = [], []
    rows = zip(*(part.tolist() for pair in (result, expected) for part in pair), strict=True)
    for index, (output, count, right_output, right_count) in enumerate(rows):
        if (output, count) == (right_output, right_count):
            outcomes.append(Outcome.EQUAL)
            continue
        request = cut_out(arguments, index)
        problem = "it is greedy"
        if request.temperature > 0:
            problem = complaint_about(request, output, count)
        outcomes.append(Outcome.WRONG if problem else Outcome.TIE)
        if problem:
            shown = f"request {index}: {output} ({count}), not {right_output} ({right_count})"
            complaints.append(f"{shown}: {problem}; {_parameters(request)}")
    return Verdict(tuple(outcomes), tuple(complaints))


def _wrong_form(result: Result, expected: Result) -> str | None:
    for name, got, right in zip(("tokens", "counts"), result, expected, strict=True):
        if got.dtype != right.dtype or got.shape != right.shape:
            return f"{name}: {got.dtype} {list(got.shape)}, not {right.dtype} {list(right.shape)}"
    return None


def _parameters(request: Request) -> str:
    drafts = "one-hot" if request.draft_probs is None else "sampled"
    filters = {name: getattr(request, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    shown = [f"{name}={value.item():.9g}" for name, value in filters.items() if value is not None]
    kind = f"{request.rule} rule, {drafts} drafts {request.drafts}"
    return ", ".join([kind, *shown, f"{request.rows.dtype} logits of {request.rows.shape[1]}"])


def judge_greedy(arguments: Arguments, result: Result) -> Verdict:
    """Judge a result of ``verify_greedy``, where only the reference's own result is right."""
    names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    expected = verify_greedy(*(arguments[name] for name in names), backend="reference")
    if problem := _wrong_form(result, expected):
        return Verdict((Outcome.WRONG,) * expected[1].shape[0], (problem,))
    outcomes, complaints = [], []
    rows = zip(*(part.tolist() for pair in (result, expected) for part in pair), strict=True)
    for index, (output, count, right_output, right_count) in enumerate(rows):
        equal = (output, count) == (right_output, right_count)
        outcomes.append(Outcome.EQUAL if equal else Outcome.WRONG)
        if not equal:
            complaints.append(
                f"request {index}: {output} ({count}), not {right_output} ({right_count})"
            )
    return Verdict(tuple(outcomes), tuple(complaints))


def assert_right(verdicts: Sequence[Verdict], *, most_ties: float = 0.01) -> None:
    """Fail on any wrong request, and if more than a part ``most_ties`` of them are ties."""
    complaints = [text for verdict in verdicts for text in verdict.complaints]
    num_requests = sum(len(verdict.outcomes) for verdict in verdicts)
    assert not complaints, f"{len(complaints)} of {num_requests} wrong:\n" + "\n".join(
        complaints[:10]
    )
    ties = sum(verdict.count(Outcome.TIE) for verdict in verdicts)
    assert ties <= most_ties * num_requests, f"{ties} of {num_requests} requests are ties"
