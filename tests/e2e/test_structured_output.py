"""Grammars beside speculation: the same answers, in any company, with every backend."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.verification.requests import BACKENDS
from tests.zoo import EVERY, KINDS
from vllm_ascend_spec.verification.sampler import SpecVerifier

REGEX = r"[a-z]{3,9}( [a-z]{3,9}){12}"
CHOICE = ["import os", "import sys", "return None"]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "size": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
GRAMMARS: dict[str, dict[str, Any]] = {
    "regex": {"regex": REGEX},
    "choice": {"choice": CHOICE},
    "json": {"json": SCHEMA},
}


@pytest.fixture(scope="module", params=BACKENDS)
def eagle(request: pytest.FixtureRequest, make_engine: Any) -> Any:
    options = {"ascend_spec": {"verify_backend": request.param}}
    return make_engine(EVERY["eagle"], additional_config=options)


def bound_to(name: str, **options: Any) -> dict[str, Any]:
    grammar = StructuredOutputsParams(**GRAMMARS[name])
    return {"structured_outputs": grammar, "ignore_eos": False, **options}


def fits(name: str, output: Any) -> bool:
    """Tell whether an answer is one that its grammar allows, or the beginning of one."""
    if output.finish_reason == "length":
        return bool(output.text)
    if name == "json":
        value = json.loads(output.text)
        return isinstance(value.get("name"), str) and len(value["name"]) <= 9
    return bool(re.fullmatch(REGEX, output.text)) if name == "regex" else output.text in CHOICE


@pytest.mark.parametrize("name", GRAMMARS)
def test_greedy_answer_is_the_same(
    name: str, expect: Any, eagle: Any, generate: Any, prompts: list[str]
) -> None:
    expected = expect(prompts[:6], **bound_to(name))
    with watch(eagle) as seen:
        actual = generate(eagle, prompts[:6], **bound_to(name))
    assert_same(token_ids(actual), token_ids(expected))
    assert all(fits(name, output) for output in actual)
    # Drafts were made and masked, and some were right. A choice is settled by its first tokens;
    # no draft fits there.
    assert seen.acceptance.num_accepted_tokens > 0 or name == "choice"
    # The grammar did something, or the comparison shows nothing.
    assert token_ids(expected) != token_ids(expect(prompts[:6]))


@pytest.mark.parametrize("method", [kind for kind in KINDS if kind.values != ("eagle",)])
@pytest.mark.parametrize("name", GRAMMARS)
def test_greedy_answer_is_the_same_with_every_method(
    name: str, method: str, expect: Any, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    expected = token_ids(expect(prompts[:6], **bound_to(name)))
    speculative = make_engine(EVERY[method])
    assert_same(token_ids(generate(speculative, prompts[:6], **bound_to(name))), expected)


@pytest.mark.parametrize("name", GRAMMARS)
def test_sampled_answers_fit_and_are_the_same(
    name: str, plain: Any, eagle: Any, generate: Any, prompts: list[str]
) -> None:
    options = bound_to(name, temperature=1.0, seed=11)
    answers = generate(eagle, prompts[:6], **options)
    assert all(fits(name, output) for output in answers)
    assert_same(token_ids(generate(plain, prompts[:6], batch=2, **options)), token_ids(answers))


@pytest.mark.parametrize("loop", ["ours", "stock"])
def test_drafts_that_a_grammar_may_cut_off_are_not_drawn(
    loop: str, make_engine: Any, generate: Any, prompts: list[str], monkeypatch: Any
) -> None:
    """Beside one whose drafts are; tests/verification/test_chain.py shows what drawing would do."""
    handed: list[torch.Tensor] = []
    verify = SpecVerifier.forward

    def forward(self: Any, metadata: Any, draft_probs: Any, *rest: Any) -> Any:
        if draft_probs is not None:
            counts = metadata.num_draft_tokens
            handed.extend(torch.stack([q.amax(), q.amin()]) for q in draft_probs.split(counts)[:1])
        return verify(self, metadata, draft_probs, *rest)

    monkeypatch.setattr(SpecVerifier, "forward", forward)
    spec = {**EVERY["eagle"], "draft_sample_method": "probabilistic"}
    llm = make_engine(spec, additional_config={"ascend_spec": {"draft_loop": loop}})
    for options, certain in (
        (bound_to("regex", temperature=1.5), True),
        ({"temperature": 1.5}, False),
    ):
        handed.clear()
        generate(llm, prompts[:2], batch=1, **options)
        assert len(handed) > 10
        assert bool((torch.stack(handed)[:, 0] == 1).all()) == certain


COMPANY: tuple[dict[str, Any], ...] = (
    bound_to("regex"),
    {},
    {"temperature": 0.9, "seed": 5},
    {"repetition_penalty": 1.2, "frequency_penalty": 0.3},
    bound_to("json", temperature=0.8, seed=6),
    bound_to("choice", repetition_penalty=1.1),
    {"temperature": 1.0, "top_p": 0.9},
)


@pytest.mark.parametrize("turn", range(3))
def test_bound_and_free_requests_in_one_batch(
    turn: int, plain: Any, eagle: Any, prompts: list[str]
) -> None:
    """In other orders, so that requests follow others of another kind in the same batch slots."""
    common = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    options = [*COMPANY[2 * turn :], *COMPANY[: 2 * turn]]
    parameters = [SamplingParams(**{**common, **option}) for option in options]
    batch = prompts[: len(parameters)]
    actual = eagle.generate(batch, parameters, use_tqdm=False)
    expected = plain.generate(batch, parameters, use_tqdm=False)
    for option, ours, theirs in zip(options, actual, expected, strict=True):
        said, output = token_ids(ours.outputs), ours.outputs[0]
        if "temperature" not in option or "seed" in option:
            assert_same(said, token_ids(theirs.outputs))
        if "structured_outputs" not in option:
            assert len(said[0]) == 40
        elif option["structured_outputs"].json:
            assert fits("json", output)


NOTHING = float("-inf")


def top(llm: Any, prompts: list[str], wanted: list[int]) -> list[list[list[tuple[int, float]]]]:
    """Return the top logprobs at each place of greedy answers of one batch.

    Args:
        llm: the engine.
        prompts: one for each request; grammars take turns.
        wanted: how many logprobs each request asks for.
    """
    grammars = [StructuredOutputsParams(**GRAMMARS[name]) for name in ("choice", "json", "regex")]
    asked = [
        SamplingParams(
            temperature=0, max_tokens=24, logprobs=count, structured_outputs=grammars[place % 3]
        )
        for place, count in enumerate(wanted)
    ]
    answers = llm.generate(prompts[: len(wanted)], asked, use_tqdm=False)
    return [
        [[(token, entry.logprob) for token, entry in at.items()] for at in one.outputs[0].logprobs]
        for one in answers
    ]


def test_forbidden_tokens_among_top_logprobs(plain: Any, eagle: Any, prompts: list[str]) -> None:
    """Which of them fill a list depends on the most that any request of the step asks for."""
    alike, mixed = [5] * 6, [3, 20, 5, 5, 2, 4]
    expected = top(plain, prompts, alike)
    assert [[token for token, _ in at] for one in top(eagle, prompts, alike) for at in one] == [
        [token for token, _ in at] for one in expected for at in one
    ]
    assert any(value == NOTHING for one in expected for at in one for _, value in at)
    # Without speculation, too: a request is beside others, or alone.
    beside, alone = (top(plain, prompts, wanted)[0] for wanted in (mixed, mixed[:1]))
    assert beside != alone
    for ours, theirs in zip(top(eagle, prompts, mixed), top(plain, prompts, mixed), strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            allowed, expected_tokens = (
                [token for token, value in at if value > NOTHING] for at in (mine, other)
            )
            assert allowed == expected_tokens
            assert len(mine) == len(other)
