"""Greedy output with speculation equals greedy output without, token for token, in float32."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import SPECS, WITH_A_LOOP, assert_same, token_ids
from vllm_ascend_spec.metrics.acceptance import from_engine

METHODS = list(SPECS)


@pytest.fixture(scope="module")
def expected(make_engine: Any, generate: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(generate(make_engine(), prompts, batch=1))


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("method", METHODS)
def test_every_prompt_is_answered_as_without_speculation(
    method: str, batch: int, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    assert len(prompts) >= 50
    llm = make_engine(SPECS[method])
    before = from_engine(llm.get_metrics())
    assert_same(token_ids(generate(llm, prompts, batch)), expected)
    accepted = from_engine(llm.get_metrics()) - before
    # An engine that never drafts, or accepts nothing, would pass the comparison too.
    assert accepted.tokens_per_step is not None
    assert accepted.tokens_per_step > 1.5


@pytest.mark.parametrize("num_tokens", [1, 2, 5])
@pytest.mark.parametrize("method", METHODS)
def test_any_number_of_drafts(
    method: str,
    num_tokens: int,
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
) -> None:
    llm = make_engine({**SPECS[method], "num_speculative_tokens": num_tokens})
    assert_same(token_ids(generate(llm, prompts[:16])), expected[:16])


@pytest.mark.parametrize("method", WITH_A_LOOP)
def test_stock_draft_loop(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    options = {"ascend_spec": {"draft_loop": "stock"}}
    llm = make_engine(SPECS[method], additional_config=options)
    assert_same(token_ids(generate(llm, prompts[:16])), expected[:16])


@pytest.mark.parametrize("method", METHODS)
def test_prefix_caching(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    """A second pass finds every prompt in the cache, the draft's keys and values too."""
    llm = make_engine(SPECS[method], enable_prefix_caching=True, block_size=32)
    generate(llm, prompts[:16])
    before = cache_hits(llm)
    assert_same(token_ids(generate(llm, prompts[:16])), expected[:16])
    assert cache_hits(llm) > before


def cache_hits(llm: Any) -> int:
    return sum(m.value for m in llm.get_metrics() if m.name == "vllm:prefix_cache_hits")


@pytest.mark.parametrize("method", METHODS)
def test_chunked_prefill(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    """Prompts of about a hundred tokens in pieces, beside requests that decode."""
    llm = make_engine(SPECS[method], max_num_batched_tokens=48, max_num_seqs=4)
    assert_same(token_ids(generate(llm, prompts[:16])), expected[:16])


@pytest.mark.parametrize("method", METHODS)
def test_end_of_the_context(
    method: str, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    """Drafts that would pass ``max_model_len`` are dropped; the last token is still right."""
    arguments = {"max_model_len": 160}
    plain = generate(make_engine(**arguments), prompts[:16], max_tokens=200)
    assert all(output.finish_reason == "length" for output in plain)
    assert any(len(output.token_ids) > 8 for output in plain)
    speculative = generate(make_engine(SPECS[method], **arguments), prompts[:16], max_tokens=200)
    assert_same(token_ids(speculative), token_ids(plain))


@pytest.mark.parametrize("method", METHODS)
def test_preemption(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    """A KV cache too small for the batch: requests are thrown out and start again."""
    llm = make_engine(
        SPECS[method], block_size=32, num_gpu_blocks_override=24, enable_prefix_caching=False
    )
    assert_same(token_ids(generate(llm, prompts[:16])), expected[:16])
    assert sum(m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions") > 0


@pytest.mark.parametrize("method", ["eagle", "ngram", "custom_class"])
def test_fewer_drafts_in_large_batches(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    """``num_speculative_tokens_per_batch_size``: three drafts alone, none from five requests on."""
    schedule = [[1, 1, 3], [2, 4, 1], [5, 8, 0]]
    llm = make_engine({**SPECS[method], "num_speculative_tokens_per_batch_size": schedule})
    for batch in (1, 3, 8):
        assert_same(token_ids(generate(llm, prompts[:8], batch)), expected[:8])


def test_careless_class(make_engine: Any, generate: Any, prompts: list[str], expected: Any) -> None:
    """Drafts of any length, in tensors, with ids that no vocabulary has."""
    llm = make_engine({**SPECS["custom_class"], "model": "tests.e2e.careless.Careless"})
    for batch in (1, 8):
        assert_same(token_ids(generate(llm, prompts[:16], batch)), expected[:16])


def test_compiled(make_engine: Any, generate: Any, prompts: list[str]) -> None:
    """torch.compile rounds differently than eager, so both sides are compiled here."""
    plain = generate(make_engine(enforce_eager=False), prompts[:16])
    eagle = generate(make_engine(SPECS["eagle"], enforce_eager=False), prompts[:16])
    assert_same(token_ids(eagle), token_ids(plain))
