"""Texts that repeat themselves: requests for an edited copy (examples/zoo/edits.json).

The zoo's target is too small to copy; a grammar that allows the answer alone leads it there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.zoo import ZOO, ZOO_TARGET
from tests.zoo import ZOO_SPECS as SPECS

EDITS: list[dict[str, str]] = json.loads((ZOO / "edits.json").read_text())
NUM_DRAFTS = 5
MAX_TOKENS = 64


@pytest.fixture(scope="module")
def engine_model() -> str:
    """The zoo's: its documents say what drafts are worth here."""
    return ZOO_TARGET


def tokens_per_step(llm: Any, texts: list[str], parameters: list[Any]) -> tuple[list[Any], float]:
    """Return the answers, and how many tokens each step after a request's first one gave."""
    with watch(llm) as seen:
        outputs = [
            output.outputs[0]
            for first in range(0, len(texts), 8)
            for output in llm.generate(
                texts[first : first + 8], parameters[first : first + 8], use_tqdm=False
            )
        ]
    tokens = sum(len(output.token_ids) for output in outputs) - len(outputs)
    steps = sum(step.num_requests for step in seen.steps) - len(outputs)
    return outputs, tokens / steps


@pytest.fixture(scope="module")
def engine(make_engine: Any) -> Any:
    """Return an engine of a method; none of its trees keeps answers from test to test."""

    def make(method: str) -> Any:
        spec = {**SPECS[method], "num_speculative_tokens": NUM_DRAFTS}
        if method in ("suffix", "hybrid"):
            spec["suffix_decoding_max_cached_requests"] = 0
        return make_engine(spec)

    return make


@pytest.fixture(scope="module")
def on_edits(engine: Any) -> Any:
    known: dict[str, float] = {}

    def measure(method: str) -> float:
        if method not in known:
            parameters = [
                SamplingParams(
                    temperature=0,
                    max_tokens=200,
                    structured_outputs=StructuredOutputsParams(choice=[edit["answer"]]),
                )
                for edit in EDITS
            ]
            texts = [edit["prompt"] for edit in EDITS]
            outputs, known[method] = tokens_per_step(engine(method), texts, parameters)
            assert [output.text for output in outputs] == [edit["answer"] for edit in EDITS]
        return known[method]

    return measure


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_drafts_from_the_text_are_worth_two_tokens_a_step(method: str, on_edits: Any) -> None:
    assert on_edits(method) >= 2.0


def test_a_hybrid_is_worth_the_better_of_its_halves_on_edits(on_edits: Any) -> None:
    hybrid, suffix, eagle = map(on_edits, ("hybrid", "suffix", "eagle"))
    assert suffix > 1.5 * eagle
    assert hybrid >= suffix, (hybrid, suffix, eagle)


@pytest.mark.nightly  # tests/e2e/test_hybrid.py has its answers, the test above what it chooses
def test_a_hybrid_is_worth_the_better_of_its_halves_on_other_text(
    engine: Any, prompts: list[str], expect: Any
) -> None:
    asked = prompts[:32]
    parameters = [SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)] * 32
    found = {}
    for method in ("hybrid", "suffix", "eagle"):
        outputs, found[method] = tokens_per_step(engine(method), asked, parameters)
        assert_same(token_ids(outputs), token_ids(expect(asked, max_tokens=MAX_TOKENS)))
    assert found["eagle"] > 1.2 * found["suffix"]
    assert found["hybrid"] >= found["eagle"], found


def test_the_answers_are_edits() -> None:
    """Each stands in its prompt, but for a name."""
    assert len(EDITS) == 24
    for edit in EDITS:
        last = edit["prompt"].rpartition("\n# With ")[2]
        new, _, rest = last.partition(" for ")
        old = rest.partition(":")[0]
        body = edit["prompt"].rpartition("\n\n\n# With ")[0]
        assert edit["answer"] in f"\n{body}".replace(old, new)
