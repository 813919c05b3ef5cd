"""Where greedy answers with speculation differ from those without, and whether that is rounding.

Rows that are verified together are multiplied in other shapes than one row. In bfloat16 that
changes the last bits of a logit, so that of two tokens that are about as likely the other one can
win. A fault looks otherwise: it picks a token that is far less likely than the one without
speculation. The two are compared with each other and not with the likeliest, which a grammar may
forbid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# By how much log-probabilities of two tokens may differ for rounding to swap them: a few steps of
# a logit between 16 and 32. In float32 answers have to be equal.
ROUNDING: Mapping[str, float] = {"float32": 0.0, "float16": 0.05, "bfloat16": 0.25}


@dataclass(frozen=True)
class Difference:
    """The first token in which two answers differ.

    Attributes:
        task: line of the task.
        position: of the token in the answer, from 0.
        expected: the token without speculation; None where that answer ends.
        actual: the one with speculation; None where that one ends.
        gap: log-probability of ``expected`` less that of ``actual``, asked without speculation and
            without a grammar; None where one of them is not known.
        top2_gap: of the likeliest token less the second; None where fewer are named.
        is_rounding: whether rounding explains it.
    """

    task: int
    position: int
    expected: int | None
    actual: int | None
    gap: float | None
    top2_gap: float | None
    is_rounding: bool


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first position in which two answers differ; None where they are equal."""
    for place, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return place
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def judge(
    task: int,
    position: int,
    tokens: tuple[int | None, int | None],
    likely: Mapping[int, float],
    rounding: float,
) -> Difference:
    """Return a difference with what the target itself says of the two tokens.

    Args:
        task: line of the task.
        position: of the difference.
        tokens: without and with speculation.
        likely: log-probabilities of the likeliest tokens there and of these two, without
            speculation.
        rounding: the largest gap that rounding explains.
    """
    expected, actual = tokens
    here, there = (None if token is None else likely.get(token) for token in tokens)
    gap = None if here is None or there is None else round(here - there, 5)
    best = sorted(likely.values(), reverse=True)[:2]
    return Difference(
        task,
        position,
        expected,
        actual,
        gap,
        round(best[0] - best[1], 5) if len(best) > 1 else None,
        gap is not None and abs(gap) <= rounding and rounding > 0,
    )


def likeliest(
    llm: Any, prompt: Sequence[int], answer: Sequence[int], tokens: Sequence[int | None] = ()
) -> dict[int, float]:
    """Return the likeliest tokens behind an answer with their log-probabilities.

    Args:
        llm: an engine without speculation.
        prompt: token ids.
        answer: token ids up to the position.
        tokens: further ones to name, however unlikely; None for none.
    """
    from vllm import SamplingParams

    found: dict[int, float] = {}
    for token in (None, *tokens):
        if token in found or (found and token is None):
            continue
        # What an engine picks is named beside the likeliest, and before others are forbidden.
        parameters = SamplingParams(
            temperature=0,
            max_tokens=1,
            logprobs=20,
            allowed_token_ids=None if token is None else [token],
        )
        asked = {"prompt_token_ids": [*prompt, *answer]}
        (output,) = llm.generate(asked, parameters, use_tqdm=False)
        named = {t: one.logprob for t, one in output.outputs[0].logprobs[0].items()}
        found |= named if token is None else {token: named[token]}
    return found
