"""Greedy output with speculation equals greedy output without, token for token, in float32.

An engine that never drafts, or accepts nothing, passes such a comparison too. So each test also
looks at what was drafted, verified and accepted (drafts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from examples.zoo import evaluate
from tests.e2e.drafts import (
    Drafts,
    check_drafts,
    check_every_step_drafts,
    check_schedule,
    count,
    watch,
)
from tests.e2e.gaps import assert_same_answers
from tests.e2e.golden import IN_RECORD, is_worth_its_record
from tests.engines import MAX_TOKENS, Generate, assert_same, token_ids
from tests.zoo import (
    ALWAYS_K,
    EVERY,
    LEAST,
    LOOPS,
    MOST_DRAFTS,
    SAME_PLACES,
    WITH_A_LOOP,
)

METHODS = list(EVERY)


@pytest.fixture(scope="module")
def longer(expect: Any, prompts: list[str]) -> list[list[int]]:
    """Answers as long as those of the zoo's record."""
    return token_ids(expect(prompts, max_tokens=evaluate.MAX_TOKENS))


@pytest.fixture(scope="module")
def expected(longer: list[list[int]]) -> list[list[int]]:
    return [answer[:MAX_TOKENS] for answer in longer]


def test_what_is_expected_is_the_same_in_any_batch(
    plain: Any, generate: Generate, prompts: list[str], expected: Any
) -> None:
    assert_same(token_ids(generate(plain, prompts[:16], batch=1)), expected[:16])


@pytest.mark.core
@pytest.mark.parametrize("method", METHODS)
def test_every_prompt_is_answered_as_without_speculation(
    method: str, make_engine: Any, generate: Any, prompts: list[str], longer: Any, check: Any
) -> None:
    assert len(prompts) >= 50
    llm = make_engine(EVERY[method], max_num_seqs=32)
    answer = partial(ask, llm, generate, prompts, max_tokens=evaluate.MAX_TOKENS)
    seen = check(method, llm, answer, longer, least=1.5)
    if method in IN_RECORD:
        assert seen.acceptance.tokens_per_step is not None
        assert is_worth_its_record(IN_RECORD[method], "greedy", seen.acceptance.tokens_per_step)


# Above they are answered side by side.
@pytest.mark.parametrize("num_prompts", [8, pytest.param(40, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("method", LOOPS)
def test_requests_alone_are_answered_as_without_speculation(
    method: str,
    num_prompts: int,
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    check: Any,
) -> None:
    llm = make_engine(EVERY[method])
    answer = partial(ask, llm, generate, prompts[:num_prompts], batch=1)
    check(method, llm, answer, expected[:num_prompts], least=1.5)


@pytest.fixture(scope="module")
def check(plain: Any, prompts: list[str]) -> Callable[..., Drafts]:
    """Return what fails unless answers are as expected and came from the drafts that they should.

    It returns what it saw.

    Its arguments:
        method: a draft model never makes fewer drafts than it was told to.
        llm: the engine.
        answer: lets it answer the first prompts, as many as there are answers to expect.
        expected: what to.
        num_drafts: drafts per step if not those of EVERY.
        least: what the mean tokens per verification exceed.
    """

    def check(
        method: str,
        llm: Any,
        answer: Callable[[], list[list[int]]],
        expected: list[list[int]],
        num_drafts: int | None = None,
        least: float = 1.3,
    ) -> Drafts:
        most = num_drafts or EVERY[method]["num_speculative_tokens"]
        with watch(llm) as seen:
            answers = answer()
        assert_same_answers(llm, plain, prompts, answers, expected)
        check_drafts(seen, most, min(least, LEAST.get(method, least)))
        if method in ALWAYS_K:
            check_every_step_drafts(seen, most, answers)
        return seen

    return check


def numbers_of_drafts() -> Iterator[Any]:
    """Yield each method with other numbers than everything else here makes."""
    for method, spec in EVERY.items():
        marks = pytest.mark.nightly if method in SAME_PLACES else ()
        # One draft takes no later step, and is the first of several elsewhere.
        yield pytest.param(method, 1, marks=marks if method in WITH_A_LOOP else pytest.mark.nightly)
        most = min(5, MOST_DRAFTS.get(method, 5))
        is_another = most != spec["num_speculative_tokens"]
        yield pytest.param(method, 2, marks=pytest.mark.nightly if is_another else marks)
        if is_another:
            yield pytest.param(method, most, marks=marks)


@pytest.mark.parametrize(("method", "num_tokens"), list(numbers_of_drafts()))
def test_any_number_of_drafts(
    method: str,
    num_tokens: int,
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    check: Any,
) -> None:
    llm = make_engine({**EVERY[method], "num_speculative_tokens": num_tokens})
    answer = partial(ask, llm, generate, prompts[:16])
    check(method, llm, answer, expected[:16], num_tokens)


@pytest.mark.parametrize(("method", "num_tokens"), [("ngram", 32), ("eagle", 64)])
def test_more_drafts_than_an_npu_takes(
    method: str,
    num_tokens: int,
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    check: Any,
) -> None:
    llm = make_engine({**EVERY[method], "num_speculative_tokens": num_tokens})
    answer = partial(ask, llm, generate, prompts[:16])
    check(method, llm, answer, expected[:16], num_tokens)


def ask(
    llm: Any, generate: Any, prompts: list[str], batch: int | None = None, **sampling: Any
) -> list[list[int]]:
    """Return the answers to some prompts."""
    return token_ids(generate(llm, prompts, batch, **sampling))


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=pytest.mark.nightly if name in SAME_PLACES else ())
        for name in ALWAYS_K
        if name != "dspark"  # vLLM has no such loop on V1
    ],
)
def test_stock_draft_loop(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any, check: Any
) -> None:
    options = {"ascend_spec": {"draft_loop": "stock"}}
    llm = make_engine(EVERY[method], additional_config=options)
    check(method, llm, partial(ask, llm, generate, prompts[:16]), expected[:16])


@pytest.mark.parametrize("method", LOOPS)
def test_chunked_prefill_and_prefix_caching(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any, check: Any
) -> None:
    """Prompts of about a hundred tokens in pieces, beside requests that decode.

    A second pass finds every prompt in the cache, the draft's keys and values too.
    """
    chunks = {"max_num_batched_tokens": 48, "max_num_seqs": 4}
    llm = make_engine(EVERY[method], enable_prefix_caching=True, block_size=32, **chunks)
    check(method, llm, partial(ask, llm, generate, prompts[:16]), expected[:16])
    before = count(llm, "vllm:prefix_cache_hits")
    check(method, llm, partial(ask, llm, generate, prompts[:16]), expected[:16])
    assert count(llm, "vllm:prefix_cache_hits") > before


@pytest.mark.parametrize("method", LOOPS)
def test_end_of_the_context(
    method: str, make_engine: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    """Drafts that would pass ``max_model_len`` are dropped; the last token is still right."""
    arguments = {"max_model_len": 160}
    plain = expect(prompts[:16], arguments, max_tokens=200)
    assert all(output.finish_reason == "length" for output in plain)
    assert any(len(output.token_ids) > 8 for output in plain)
    llm = make_engine(EVERY[method], **arguments)
    with watch(llm) as seen:
        speculative = generate(llm, prompts[:16], max_tokens=200)
    assert_same(token_ids(speculative), token_ids(plain))
    check_drafts(seen, EVERY[method]["num_speculative_tokens"])
    if method in ALWAYS_K:  # which make fewer drafts nowhere else
        assert {num for step in seen.steps for num in step.drafts} > {3}


@pytest.mark.parametrize("method", LOOPS)
def test_preemption(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any, check: Any
) -> None:
    """A KV cache too small for the batch: requests are thrown out and start again."""
    llm = make_engine(
        EVERY[method], block_size=32, num_gpu_blocks_override=24, enable_prefix_caching=False
    )
    check(method, llm, partial(ask, llm, generate, prompts[:16]), expected[:16])
    assert count(llm, "vllm:num_preemptions") > 0


# One for each way to make no drafts; a hybrid's and a layer's are those of others.
NO_DRAFTS_BY_DAY = ("eagle", "eagle3", "pard", "medusa", "ngram", "custom_class")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name in NO_DRAFTS_BY_DAY else pytest.mark.nightly)
        for name in METHODS
    ],
)
def test_fewer_drafts_in_large_batches(
    method: str, make_engine: Any, generate: Any, prompts: list[str], longer: Any
) -> None:
    """``num_speculative_tokens_per_batch_size``: three drafts alone, none from five requests on."""
    schedule = [[1, 1, 3], [2, 4, 1], [5, 8, 0]]
    llm = make_engine({**EVERY[method], "num_speculative_tokens_per_batch_size": schedule})
    # Eight requests get no drafts, so they end together: fewer are never left.
    for batch, most in ((1, 3), (3, 3), (8, 0)):
        with watch(llm) as seen:
            answers = ask(llm, generate, prompts[:8], batch, max_tokens=evaluate.MAX_TOKENS)
        assert_same(answers, longer[:8])
        check_schedule(seen, schedule, every_step=method in ALWAYS_K)
        assert max(max(step.drafts, default=0) for step in seen.steps) == most
        places = min(most, 1) if method in LEAST else most
        assert all(seen.acceptance.accepted_per_position[:places])


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=() if name == "eagle" else pytest.mark.nightly) for name in METHODS],
)
def test_no_drafts_beyond_a_batch_size(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    """``disable_by_batch_size``; the draft model is right again in the smaller batch after it."""
    llm = make_engine({**EVERY[method], "disable_by_batch_size": 4})
    for batch, most in ((5, 0), (4, EVERY[method]["num_speculative_tokens"])):
        with watch(llm) as seen:
            assert_same(token_ids(generate(llm, prompts[:batch], batch)), expected[:batch])
        assert max(max(step.drafts, default=0) for step in seen.steps) == most


def test_careless_class(make_engine: Any, generate: Any, prompts: list[str], expected: Any) -> None:
    """Drafts of any length, in tensors, with ids that no vocabulary has."""
    llm = make_engine({**EVERY["custom_class"], "model": "tests.e2e.careless.Careless"})
    for batch in (1, 8):
        with watch(llm) as seen:
            assert_same(token_ids(generate(llm, prompts[:16], batch)), expected[:16])
        # What no vocabulary has is cut off, and what stands before it is still accepted.
        assert seen.acceptance.num_draft_tokens < 3 * seen.acceptance.num_drafts
        check_drafts(seen, 3, 1.1)


# By day test_examples.py compares what the demo's servers answer, which are compiled.
@pytest.mark.nightly
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("method", EVERY)
def test_compiled(
    method: str,
    batch: int,
    make_engine: Any,
    expect: Any,
    generate: Any,
    prompts: list[str],
    check: Any,
) -> None:
    """torch.compile rounds differently than eager, so both sides are compiled here."""
    plain = expect(prompts[:32], {"enforce_eager": False})
    llm = make_engine(EVERY[method], enforce_eager=False)
    check(method, llm, partial(ask, llm, generate, prompts[:32], batch), token_ids(plain))
