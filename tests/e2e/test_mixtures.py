"""Targets with experts: a Qwen3-MoE, and a gpt-oss with windows and attention sinks.

A window is 64 tokens, and most prompts are longer.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.drafts import check_drafts, check_every_step_drafts, watch
from tests.engines import Generate, MakeEngine, assert_same, token_ids
from tests.zoo import MIXTURES, ZOO, spec_of_mixture

NUM_PROMPTS, TOKENS = 12, 40
K = 3
NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 3,
}
NIGHTLY = pytest.mark.nightly
# Further arguments of the engine, and how many requests run at once.
ENGINES: dict[str, tuple[dict[str, Any], int]] = {
    "no-cache": ({"enable_prefix_caching": False}, 8),
    "one": ({"enable_prefix_caching": True}, 1),
    "pieces": ({"max_num_batched_tokens": 41, "max_num_seqs": 4}, NUM_PROMPTS),
    "async": ({"async_scheduling": True}, 8),
    "compiled": ({"enforce_eager": False}, 8),
}
BY_DAY = {("eagle3", "no-cache"), ("eagle3", "pieces")}
# vLLM runs n-grams with synchronous scheduling alone.
WAYS = [
    pytest.param(method, how, marks=() if (method, how) in BY_DAY else NIGHTLY)
    for method in ("eagle3", "ngram")
    for how in ENGINES
    if (method, how) != ("ngram", "async")
]


@pytest.fixture(scope="module", params=MIXTURES)
def mixture(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def engine_model(mixture: str) -> str:
    return str(ZOO / f"target-{mixture}")


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts[:NUM_PROMPTS], max_tokens=TOKENS))


@pytest.mark.parametrize(("method", "how"), WAYS)
def test_answers_are_those_of_no_speculation(
    method: str,
    how: str,
    mixture: str,
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    spec = spec_of_mixture(mixture) if method == "eagle3" else NGRAM
    engine, batch = ENGINES[how]
    llm = make_engine(spec, **engine)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:NUM_PROMPTS], batch, max_tokens=TOKENS))
    assert_same(answers, expected)
    check_drafts(seen, spec["num_speculative_tokens"], 1.2)
    if method == "eagle3" and how != "pieces":
        check_every_step_drafts(seen, K, answers)


# Processes share out experts of either target alike.
@pytest.mark.parametrize(
    "mixture",
    [pytest.param(name, marks=() if name == "qwen3-moe" else NIGHTLY) for name in MIXTURES],
    indirect=True,
    scope="module",
)
@pytest.mark.usefixtures("copied_workers")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"enable_expert_parallel": True}, id="experts"),
        pytest.param({}, id="all", marks=NIGHTLY),
    ],
)
def test_two_processes_answer_as_one(
    options: dict[str, Any],
    mixture: str,
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    """Each has half of the experts, or half of each."""
    llm = make_engine(spec_of_mixture(mixture), tensor_parallel_size=2, **options)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:NUM_PROMPTS], max_tokens=TOKENS))
    assert_same(answers, expected)
    check_drafts(seen, K, 1.2)
