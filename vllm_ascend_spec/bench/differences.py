"""Find where greedy answers with and without speculation differ, and whether that is rounding.

Verification multiplies matrices of other shapes than decoding a single row. In bfloat16 that
changes the last bits of a logit, so the other of two about equally likely tokens may win. A fault,
in contrast, picks a token that is far less likely than the one without speculation. These two
tokens are compared with each other, not with the argmax, which a grammar may forbid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Largest gap between the log-probabilities of two tokens that rounding may swap: a few rounding
# steps of a logit between 16 and 32. In float32 answers have to be equal.
ROUNDING: Mapping[str, float] = {"float32": 0.0, "float16": 0.05, "bfloat16": 0.25}


@dataclass(frozen=True)
class Difference:
    """The first token at which two answers differ.

    Attributes:
        task: line number of the task.
        position: index of the token in the answer, from 0.
        expected: the token without speculation; None if that answer ends there.
        actual: the token with speculation; None if that answer ends there.
        gap: log-probability of ``expected`` minus that of ``actual``, measured without speculation
            and without a grammar; None if one of them is unknown.
        top2_gap: the same for the two most likely tokens; None if fewer are known.
        is_rounding: whether rounding explains the difference.
    """

    task: int
    position: int
    expected: int | None
    actual: int | None
    gap: float | None
    top2_gap: float | None
    is_rounding: bool


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first position at which two answers differ; None if they are equal."""
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
    """Judge a difference by the target's own log-probabilities of the two tokens.

    Args:
        task: line number of the task.
        position: position of the difference.
        tokens: the tokens without and with speculation.
        likely: log-probabilities there, without speculation, of the most likely tokens and of
            these two.
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


def argmax(
    llm: Any, prompt: Sequence[int], answer: Sequence[int], tokens: Sequence[int | None] = ()
) -> dict[int, float]:
    """Return the most likely tokens after an answer, with their log-probabilities.

    Args:
        llm: an engine without speculation.
        prompt: token ids.
        answer: token ids up to the position.
        tokens: further tokens to include, however unlikely; a None is ignored.
    """
    from vllm import SamplingParams

    found: dict[int, float] = {}
    for token in (None, *tokens):
        if token in found or (found and token is None):
            continue
        # Logprobs include the picked token, and are computed before other tokens are forbidden.
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
