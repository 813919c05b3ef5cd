"""Where greedy answers with speculation differ from those without, and whether that is rounding.

Rows that are verified together are multiplied in other shapes than one row. In bfloat16 that
changes the last bits of a logit, so that of two tokens that are about as likely the other one can
win. A fault looks otherwise: it picks a token that is far less likely than the best one.
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
        gap: log-probability of the likeliest token less that of ``actual``, asked without
            speculation; None where it is not among those that the engine names.
        top2_gap: of the likeliest token less the second.
        is_rounding: whether rounding explains it.
    """

    task: int
    position: int
    expected: int | None
    actual: int | None
    gap: float | None
    top2_gap: float
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
        likely: the likeliest tokens there with their log-probabilities, without speculation.
        rounding: the largest gap that rounding explains.
    """
    first, second = sorted(likely.values(), reverse=True)[:2]
    expected, actual = tokens
    there = None if actual is None else likely.get(actual)
    gap = None if there is None else round(first - there, 5)
    return Difference(
        task,
        position,
        expected,
        actual,
        gap,
        round(first - second, 5),
        gap is not None and gap <= rounding and rounding > 0,
    )


def likeliest(llm: Any, prompt: Sequence[int], answer: Sequence[int]) -> dict[int, float]:
    """Return the likeliest tokens behind an answer with their log-probabilities.

    Args:
        llm: an engine without speculation.
        prompt: token ids.
        answer: token ids up to the position.
    """
    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0, max_tokens=1, logprobs=20)
    (output,) = llm.generate({"prompt_token_ids": [*prompt, *answer]}, parameters, use_tqdm=False)
    return {token: found.logprob for token, found in output.outputs[0].logprobs[0].items()}
