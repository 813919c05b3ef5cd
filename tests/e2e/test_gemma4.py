"""Gemma 4 and its assistant, which attends to the target's keys and values.

A window is 64 tokens, and most prompts are longer. Layers with a window and with full attention
have heads and blocks of two sizes, in three groups of the KV cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.centroids import write_with_centroids
from tests.e2e.drafts import check_drafts, check_every_step_drafts, watch
from tests.engines import Generate, MakeEngine, assert_same, token_ids
from tests.zoo import ASSISTANT, GEMMA4

NUM_PROMPTS, TOKENS = 12, 40
K = ASSISTANT["num_speculative_tokens"]
NIGHTLY = pytest.mark.nightly
HYBRID = {**ASSISTANT, "method": "hybrid", "hybrid_model_method": "mtp"}
# The speculative config, further arguments of the engine, and how many requests run at once.
ENGINES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "no-cache": (ASSISTANT, {"enable_prefix_caching": False}, 8),
    "pieces": (ASSISTANT, {"max_num_batched_tokens": 41, "max_num_seqs": 4}, NUM_PROMPTS),
    "one": (ASSISTANT, {"enable_prefix_caching": True}, 1),
    "async": (ASSISTANT, {"async_scheduling": True}, 8),
    "compiled": (ASSISTANT, {"enforce_eager": False}, 8),
    "hybrid": (HYBRID, {}, 8),
}
BY_DAY = ("no-cache",)
WAYS = [pytest.param(how, marks=() if how in BY_DAY else NIGHTLY) for how in ENGINES]


@pytest.fixture(scope="module")
def engine_model() -> str:
    return GEMMA4


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts[:NUM_PROMPTS], max_tokens=TOKENS))


@pytest.mark.parametrize("how", WAYS)
def test_answers_are_those_of_no_speculation(
    how: str,
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    spec, engine, batch = ENGINES[how]
    llm = make_engine(spec, **engine)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:NUM_PROMPTS], batch, max_tokens=TOKENS))
    assert_same(answers, expected)
    # Keys and values that are not the target's are worth far less.
    check_drafts(seen, K, 2.0)
    if how not in ("pieces", "hybrid"):
        check_every_step_drafts(seen, K, answers)


def test_an_assistant_may_have_centroids(
    tmp_path: Path,
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    """vLLM captures the search among them in CUDA graphs; with all chosen, drafts are the same."""
    accepted = []
    for model in (ASSISTANT["model"], str(write_with_centroids(tmp_path / "assistant"))):
        llm = make_engine({**ASSISTANT, "model": model}, enable_prefix_caching=False)
        with watch(llm) as seen:
            answers = token_ids(generate(llm, prompts[:NUM_PROMPTS], 8, max_tokens=TOKENS))
        assert_same(answers, expected)
        accepted.append(seen.acceptance)
    assert accepted[0] == accepted[1]


@NIGHTLY
@pytest.mark.usefixtures("copied_workers")
def test_two_processes_answer_as_one(
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    llm = make_engine(ASSISTANT, tensor_parallel_size=2)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:NUM_PROMPTS], max_tokens=TOKENS))
    assert_same(answers, expected)
    check_drafts(seen, K, 2.0)


def test_our_loop_drafts_what_vllms_does(
    make_engine: MakeEngine, generate: Generate, prompts: list[str]
) -> None:
    """Every step at one position, on the same lengths."""
    accepted = []
    for loop in ("ours", "stock"):
        section = {"ascend_spec": {"draft_loop": loop}}
        llm = make_engine(ASSISTANT, additional_config=section, enable_prefix_caching=False)
        with watch(llm) as seen:
            generate(llm, prompts[:NUM_PROMPTS], 8, max_tokens=TOKENS)
        accepted.append(seen.acceptance)
    assert accepted[0] == accepted[1]
