"""Whether a backend's result is right up to rounding, by the contract of ``verify_sample``.

:func:`judge` compares a result with the reference's. A request that differs is a tie if rounding
explains it, by ``tests/ops/rounding.py``, else it is wrong; a greedy request is never a tie.

Use :func:`assert_right`; the cases to use it on are made by ``tests/ops/cases.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tests.ops.batches import Arguments
from tests.ops.rounding import Request, as_distributions, complaint_about
from vllm_ascend_spec.ops import verify_greedy, verify_sample

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


def cut_out(arguments: Arguments, index: int) -> Request:
    """Return one request of a batch."""
    ends = [0, *arguments["cu_num_draft_tokens"].tolist()]
    start, end = ends[index], ends[index + 1]

    def own(name: str) -> torch.Tensor | None:
        values = arguments.get(name)
        return None if values is None else values[index : index + 1]

    drafts, probs = arguments["draft_token_ids"][start:end], arguments.get("draft_probs")
    if probs is not None:
        drafts, probs = as_distributions(drafts, probs[start:end])
    return Request(
        index=index,
        rule=arguments.get("rule", "token"),
        drafts=drafts.tolist(),
        rows=arguments["logits"][start + index : end + index + 1],
        temperature=arguments["temperature"][index : index + 1],
        top_k=own("top_k"),
        top_p=own("top_p"),
        min_p=own("min_p"),
        draft_probs=probs,
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
