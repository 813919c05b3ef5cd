"""How close a greedy choice was where answers part: a near tie rounds away, a fault does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Return the first place where two answers differ; the shorter one's end if none."""
    pairs = zip(ours, theirs, strict=False)
    return next(
        (place for place, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs))
    )


def gap(llm: Any, tokens: list[int]) -> float:
    """Return by how much, in logits, an engine prefers its next token to the second best."""
    from vllm import SamplingParams, TokensPrompt

    parameters = SamplingParams(temperature=0, max_tokens=1, logprobs=2, ignore_eos=True)
    (output,) = llm.generate(TokensPrompt(prompt_token_ids=tokens), parameters, use_tqdm=False)
    best, second = sorted(
        (found.logprob for found in output.outputs[0].logprobs[0].values()), reverse=True
    )[:2]
    return best - second


def differences(
    llm: Any,
    plain: Any,
    prompts: Sequence[str],
    actual: Sequence[list[int]],
    expected: Sequence[list[int]],
) -> Iterator[str]:
    """Yield a line for each answer that differs.

    Args:
        llm: the engine that gave ``actual``.
        plain: the engine that gave ``expected``.
        prompts: what was asked, one for each answer.
        actual: answers with speculation.
        expected: answers without.
    """
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if ours == theirs:
            continue
        place = first_difference(ours, theirs)
        asked = llm.get_tokenizer().encode(prompts[index], add_special_tokens=False)
        tokens = [*asked, *theirs[:place]]
        yield (
            f"answer {index}, token {place}: {ours[place : place + 1]} instead of "
            f"{theirs[place : place + 1]}; gap between the two best logits "
            f"{gap(llm, tokens):.2e} with speculation, {gap(plain, tokens):.2e} without"
        )


def assert_same_answers(
    llm: Any,
    plain: Any,
    prompts: Sequence[str],
    actual: Sequence[list[int]],
    expected: Sequence[list[int]],
) -> None:
    """Fail with a line for each answer that differs; see :func:`differences`."""
    if list(actual) != list(expected):
        asked = prompts[: len(actual)]
        pytest.fail("\n".join(differences(llm, plain, asked, actual, expected)))
