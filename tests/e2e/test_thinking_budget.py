"""``thinking_token_budget`` with drafts: the answers without speculation, and no budget exceeded.

The zoo's models do not reason; a word that they often write stands for the start of a thought.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from vllm import SamplingParams, TokensPrompt

from tests.engines import assert_same
from tests.zoo import SPECS
from vllm_ascend_spec.metrics.acceptance import from_engine
from vllm_ascend_spec.upstream.ranges import vllm_is

pytestmark = pytest.mark.skipif(
    vllm_is("<0.30"), reason="vLLM 0.23 stops where it should end a thought, without drafts too"
)

BUDGETS = (None, 0, 1, 2, 3, 5, 8, None, 13, 4, 6)
LENGTH = 40


class Strings(NamedTuple):
    """What opens a thought and what is forced to close it."""

    start: str
    end: str


STRINGS = {
    "closed by one token": Strings("self", "import"),
    "closed by three tokens": Strings("self", "# done\n"),
    "which the model closes too": Strings("self", "):\n"),
    "begun by several tokens": Strings("<think>", "# done\n"),
}


class Case(NamedTuple):
    """A request; ``opened`` is where a thought begins in its prompt, the prompt's end for none."""

    prompt: list[int]
    opened: int
    budget: int | None

    @property
    def parameters(self) -> SamplingParams:
        return SamplingParams(
            temperature=0,
            max_tokens=LENGTH,
            ignore_eos=True,
            thinking_token_budget=self.budget,
        )


def make_cases(llm: Any, strings: Strings, prompts: Sequence[str]) -> list[Case]:
    """Give requests with and without budgets; two of three open a thought in their prompts."""
    encode = llm.get_tokenizer().encode
    start = encode(strings.start, add_special_tokens=False)
    cases = []
    for index, text in enumerate(prompts):
        prompt = encode(text)
        thought = [[], start, [*start, 5, 6]][index % 3]
        cases.append(Case([*prompt, *thought], len(prompt), BUDGETS[index % len(BUDGETS)]))
    return cases


def answer(llm: Any, cases: list[Case]) -> list[list[int]]:
    """Answer all at once: eight at a time, others take the places of those that end."""
    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=case.prompt) for case in cases],
        [case.parameters for case in cases],
        use_tqdm=False,
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


def find(tokens: list[int], marker: list[int], first: int = 0) -> int | None:
    """Return where ``marker`` begins in ``tokens``, or None."""
    places = range(first, len(tokens) - len(marker) + 1)
    return next((p for p in places if tokens[p : p + len(marker)] == marker), None)


def check(tokens: list[int], start: list[int], end: list[int], allowed: int) -> int:
    """Check that each thought ends in time, with a whole closing string; return how many do."""
    closed, place = 0, find(tokens, start)
    while place is not None:
        first = place + len(start)
        last = find(tokens, end, first)
        if last is None or last - first > allowed:
            rest = tokens[first + allowed :]
            assert rest == end[: len(rest)], f"{tokens[first:]} exceed {allowed}, or are torn"
            return closed
        closed, place = closed + 1, find(tokens, start, last + len(end))
    return closed


@pytest.mark.parametrize("name", list(STRINGS))
def test_answers_are_those_without_speculation(
    name: str, make_engine: Any, prompts: list[str]
) -> None:
    strings = STRINGS[name]
    reasoning = {"reasoning_start_str": strings.start, "reasoning_end_str": strings.end}
    plain = make_engine(reasoning_config=reasoning)
    speculative = make_engine(SPECS["eagle"], reasoning_config=reasoning)
    cases = make_cases(plain, strings, prompts[:33])
    expected = answer(plain, cases)
    before = from_engine(speculative.get_metrics())
    actual = answer(speculative, cases)
    drafted = from_engine(speculative.get_metrics()) - before
    assert drafted.num_accepted_tokens > drafted.num_drafts > 0
    assert_same(actual, expected)
    encode = speculative.get_tokenizer().encode
    start, end = (encode(string, add_special_tokens=False) for string in strings)
    closed = 0
    for case, tokens in zip(cases, actual, strict=True):
        if case.budget is None:
            continue
        # What the prompt has used of the budget, or more than that, cannot be taken back.
        thought = case.prompt[case.opened :]
        used = max(0, len(thought) - len(start))
        closed += check([*thought, *tokens], start, end, max(case.budget, used))
    assert closed > len(cases) // 2
