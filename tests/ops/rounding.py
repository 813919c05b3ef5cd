"""What rounding may change in the result of one sampled request of ``verify_sample``.

Every decision of the op compares a number with a threshold, and a backend that adds in another
order or in float32 may see either move a little. A decision is within rounding if the reference
makes it with the uniform, top-p or min-p moved by no more than ``EPSILON``:

* a draft is accepted, or not, by the token rule: ``u q < p``, with u moved by ``EPSILON``;
* by the block rule: ``u < h_i``. ``h_i = R / (R + 1 - w)`` is the quotient of what remains when
  all later drafts are rejected, which has the probability ``R + 1 - w``; an error of ``EPSILON``
  in R and w moves it by ``EPSILON / (R + 1 - w)``, and its part of the output by ``EPSILON``;
* the last token lies where the cumulative weights reach ``u`` of their sum, moved by ``EPSILON``;
  of a sum of differences ``w p - q`` by ``EPSILON`` of the mass of p, for there p's rounding
  remains while the sum may be as small as it likes;
* a token outside the target's filters is never right.

Rows whose top-p or min-p falls between two tokens within ``EPSILON`` have several possible
distributions; the extremes over them bound each threshold.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from vllm_ascend_spec.ops.verify_sample.reference import target_probs

EPSILON = 2e-6
# Smallest normal float32, with room for a sum: a probability below may be nothing to a backend.
VANISHING = 1e-36


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


def as_distributions(
    drafts: torch.Tensor,  # [num_drafts]
    draft_probs: torch.Tensor,  # [num_drafts, vocab_size]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as the contract takes them: drafts of NaN are -1; what is not above 0 is 0."""
    own = draft_probs.gather(1, drafts.long().clamp(min=0)[:, None])[:, 0]
    return drafts.masked_fill(own.isnan(), -1), draft_probs.nan_to_num(
        nan=0.0, posinf=float("inf"), neginf=0.0
    ).clamp(min=0.0)


@dataclass(frozen=True, eq=False)
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

    @functools.lru_cache(maxsize=64)  # noqa: B019 – those of a case, of requests that soon go
    def row(self, position: int) -> Row:
        """Return the distributions of one row under all moves of its filters, its own first."""
        top_ps, min_ps = _moved(self.top_p, 9, off=1.0), _moved(self.min_p, 3, off=0.0)
        moves = list(itertools.product(top_ps or [None], min_ps or [None]))
        probs = target_probs(
            self.rows[position].expand(len(moves), -1),
            self.temperature.expand(len(moves)),
            None if self.top_k is None else self.top_k.expand(len(moves)),
            torch.tensor([top_p for top_p, _ in moves], dtype=torch.float64) if top_ps else None,
            torch.tensor([min_p for _, min_p in moves], dtype=torch.float64) if min_ps else None,
        )
        # Filters are thresholds: two rows that keep as many tokens keep the same.
        kept = (probs > 0).sum(dim=-1).tolist()
        return Row(probs[[kept.index(size) for size in dict.fromkeys(kept)]])

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
    return [min(max(value + move, min(value, 1e-12)), 1.0) for move in sorted(moves, key=abs)]


@dataclass(frozen=True)
class Decision:
    """How the first i drafts are accepted: where their uniform is below a threshold.

    Attributes:
        uniform: of draft i.
        threshold: bounds of the threshold.
        leeway: how far rounding moves either bound.
        weight: bounds of w_i of the block rule; 1 in the token rule.
        possible: whether p leaves the drafts any chance.
    """

    uniform: float
    threshold: Span
    leeway: Span
    weight: Span
    possible: bool

    @property
    def may_accept(self) -> bool:
        return self.possible and self.uniform - self.leeway.high < self.threshold.high

    @property
    def may_reject(self) -> bool:
        return self.threshold.low == 0 or self.uniform + self.leeway.low >= self.threshold.low

    def __str__(self) -> str:
        low, high = self.threshold.low, self.threshold.high
        leeway = max(self.leeway.low, self.leeway.high)
        return f"uniform {self.uniform:.9g}, threshold {low:.9g} to {high:.9g} (±{leeway:.2g})"


def decisions(request: Request) -> list[Decision]:
    """Return the decisions on the first i drafts of a request, for i from 1."""
    return {"token": token_decisions, "block": block_decisions}[request.rule](request)


def token_decisions(request: Request) -> list[Decision]:
    """Return the token rule's decisions: u < p(x) / q(x)."""
    one, leeway = Span(1.0, 1.0), Span(EPSILON, EPSILON)
    result = []
    for position in range(request.length):
        q, p = request.draft_prob(position), request.row(position).prob(request.drafts[position])
        threshold = Span(_quotient(p.low, q), _quotient(p.high, q))
        result.append(Decision(request.accept[position], threshold, leeway, one, p.high > 0))
    return result


def _quotient(p: float, q: float) -> float:
    if p == 0:
        return 0.0
    return p / q if q > 0 else float("inf")


def block_decisions(request: Request) -> list[Decision]:
    """Return the block rule's decisions: u < h_i."""
    result = []
    weight = Span(1.0, 1.0)
    for position in range(request.length):
        q, p = request.draft_prob(position), request.row(position).prob(request.drafts[position])
        weight = Span(
            min(_quotient(weight.low * p.low, q), 1.0),
            min(_quotient(weight.high * p.high, q), 1.0),
        )
        threshold, leeway = weight, Span(EPSILON, EPSILON)
        if position + 1 < request.length:
            # h rises with w, so that the bounds of w give those of h.
            low = min(_chances(request, position + 1, weight.low))
            high = max(_chances(request, position + 1, weight.high))
            threshold, leeway = Span(low[0], high[0]), Span(low[1], high[1])
        result.append(
            Decision(request.accept[position], threshold, leeway, weight, weight.high > 0)
        )
    return result


def _chances(request: Request, position: int, weight: float) -> list[tuple[float, float]]:
    """Return h of the drafts before ``position``, over the row's variants, and its leeway."""
    q = request.draft_row(position)
    rest = (weight * request.row(position).variants - q).clamp(min=0).sum(dim=-1)
    chances = []
    for remaining in rest.tolist():
        reached = remaining + 1 - weight
        leeway = EPSILON / reached if reached > 0 else 1.0
        chances.append((1.0 if weight >= 1 else remaining / reached, leeway))
    return chances


@dataclass(frozen=True)
class LastToken:
    """What the last token is drawn from.

    Attributes:
        weights: float64 [vocab_size], not normalised.
        possible: bool [vocab_size], tokens whose weight rounding may leave above 0.
        leeway: how far rounding moves the uniform's share of the sum of the weights.
    """

    weights: torch.Tensor
    possible: torch.Tensor
    leeway: float

    def may_be(self, token: int, uniform: float) -> bool:
        """Tell whether the cumulative weights reach ``uniform`` of their sum at ``token``."""
        cumulative = self.weights.cumsum(dim=0)
        goal = uniform * float(cumulative[-1])
        reached = float(cumulative[token])
        before = reached - float(self.weights[token])
        possible = bool(self.possible[token])
        return possible and before <= goal + self.leeway and reached >= goal - self.leeway


def last_tokens(request: Request, num_accepted: int, weight: Span) -> Iterator[LastToken]:
    """Return all that the token after ``num_accepted`` drafts may be drawn from."""
    for p in request.row(num_accepted).variants:
        whole = LastToken(p, p > 0, EPSILON)
        if num_accepted == request.length:
            yield whole
            continue
        q = request.draft_row(num_accepted)
        for w in {weight.low, weight.high} - {0.0}:
            rest = (w * p - q).clamp(min=0)
            total = float(rest.sum())
            if request.draft_probs is None:
                # No differences here: p without the draft is as exact as p.
                yield LastToken(rest, rest > 0, EPSILON * total)
            else:
                yield LastToken(rest, w * p * (1 + EPSILON) > q, EPSILON)
            # Where rounding decides whether anything is left, it may put p in its place.
            if total <= (VANISHING if request.draft_probs is None else EPSILON):
                yield whole


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
    for position, decision in enumerate(decisions(request)):
        # The block rule takes the largest i it can; decisions before that do not matter.
        needed = position + 1 == num_accepted if block else position < num_accepted
        if needed and not decision.may_accept:
            return f"draft {position} is accepted: {decision}"
        refused = position >= num_accepted if block else position == num_accepted
        if refused and not decision.may_reject:
            return f"draft {position} is rejected: {decision}"
    return None


def _mistaken(request: Request, num_accepted: int, token: int) -> str | None:
    if not 0 <= token < request.rows.shape[1]:
        return f"token {token} is not in the vocabulary"
    weight = decisions(request)[num_accepted - 1].weight if num_accepted else Span(1.0, 1.0)
    if any(
        last.may_be(token, request.sample) for last in last_tokens(request, num_accepted, weight)
    ):
        return None
    return f"token {token} does not follow for a sample uniform of {request.sample:.9g}"
