"""A request with a seed repeats, whatever is in the prefix cache and whatever runs beside it."""

from __future__ import annotations

from typing import Any

import pytest
from vllm import SamplingParams

from tests.e2e.staggered import run_staggered
from tests.zoo import KINDS_OF_DRAFTS, drafting
from vllm_ascend_spec.upstream.ranges import vllm_is
from vllm_ascend_spec.verification import sampler, uniforms
from vllm_ascend_spec.worker.per_request import PerRequestMixin

BLOCK, LIMIT = 32, 256
ARGUMENTS = {"block_size": BLOCK, "max_model_len": LIMIT}
SEEDS = range(6)


def seeded(seed: int, max_tokens: int = 24) -> SamplingParams:
    return SamplingParams(temperature=1.0, seed=seed, max_tokens=max_tokens, ignore_eos=True)


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


# What a negative control takes out shows where requests of one token are padded.
pads_requests = pytest.mark.skipif(vllm_is("<0.30"), reason="vLLM 0.23 pads no request")


@pytest.fixture(
    scope="module",
    params=[pytest.param(way.values, marks=way.marks) for way in KINDS_OF_DRAFTS],
    ids="-".join,
)
def llm(request: pytest.FixtureRequest, make_engine: Any) -> Any:
    return make_engine(drafting(*request.param), **ARGUMENTS)


@pytest.fixture(scope="module")
def tokens(make_engine: Any, prompts: list[str]) -> list[int]:
    """The tokens of a long text."""
    tokenizer = make_engine(**ARGUMENTS).get_tokenizer()
    return tokenizer.encode("\n".join(prompts[:4]), add_special_tokens=False)


def cut(tokens: list[int], start: int, length: int) -> Any:
    return {"prompt_token_ids": tokens[start : start + length]}


def asked_twice(llm: Any, prompt: Any) -> list[tuple[list[int], list[int]]]:
    """Return each seed's answers to a new prompt and to one that the cache has all but one of."""
    pairs = []
    for seed in SEEDS:
        llm.reset_prefix_cache()
        first, second = (run_staggered(llm, [(0, prompt, seeded(seed))])[0] for _ in range(2))
        pairs.append((first, second))
    return pairs


@pytest.mark.core
def test_with_all_but_one_token_in_the_prefix_cache(llm: Any, tokens: list[int]) -> None:
    """vLLM pads such a request with K drafts of -1."""
    pairs = asked_twice(llm, cut(tokens, 0, 2 * BLOCK + 1))
    assert [second for _, second in pairs] == [first for first, _ in pairs]
    assert len({tuple(first) for first, _ in pairs}) > 3


@pytest.mark.core
def test_joining_a_greedy_request(llm: Any, tokens: list[int]) -> None:
    for seed in SEEDS:
        mine, other = cut(tokens, 7, 1), cut(tokens, 40, 50)
        alone = run_staggered(llm, [(0, mine, seeded(seed))])[0]
        beside = run_staggered(llm, [(0, other, greedy(20)), (2, mine, seeded(seed))])[1]
        assert beside == alone, seed


def at_the_end(llm: Any, tokens: list[int], seed: int) -> tuple[list[int], list[int]]:
    """Return a request's answers alone and beside one that comes to the end of the context."""
    mine, other = cut(tokens, 0, 20), cut(tokens, 30, LIMIT - 20)
    alone = run_staggered(llm, [(0, mine, seeded(seed, 40))])[0]
    beside = run_staggered(llm, [(0, mine, seeded(seed, 40)), (0, other, greedy(20))])[0]
    return alone, beside


def test_beside_a_request_at_the_end_of_the_context(llm: Any, tokens: list[int]) -> None:
    for seed in SEEDS:
        alone, beside = at_the_end(llm, tokens, seed)
        assert beside == alone, seed


@pads_requests
def test_a_count_that_follows_the_drafts_would_be_noticed(
    make_engine: Any, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: as many numbers as the request has drafts, its own the last of them."""

    def by_drafts(counts: list[int], generators: Any, device: Any, longest: int) -> Any:
        drawn = uniforms.draw_uniforms(counts, {}, device, longest)
        for request, generator in generators.items():
            start = sum(counts[:request])
            accept = drawn.accept[start : start + counts[request]]
            accept.uniform_(generator=generator)
            drawn.sample[request : request + 1].uniform_(generator=generator)
        return drawn

    monkeypatch.setattr(sampler, "draw_uniforms", by_drafts)
    llm = make_engine(drafting("ngram", "greedy"), **ARGUMENTS)
    pairs = asked_twice(llm, cut(tokens, 0, 2 * BLOCK + 1))
    assert [second for _, second in pairs] != [first for first, _ in pairs]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("_get_spec_decode_draft_probs", marks=pads_requests),
        "_input_fits_in_drafter",
    ],
)
def test_deciding_for_the_whole_batch_would_be_noticed(
    name: str, make_engine: Any, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what vLLM does where one request has no distribution, or no room."""
    monkeypatch.delattr(PerRequestMixin, name)
    llm = make_engine(drafting("eagle", "probabilistic"), **ARGUMENTS)
    if name == "_input_fits_in_drafter":
        pairs = [at_the_end(llm, tokens, seed) for seed in SEEDS]
    else:
        pairs = [padded_neighbour(llm, tokens, seed) for seed in SEEDS]
    assert any(alone != beside for alone, beside in pairs)


def padded_neighbour(llm: Any, tokens: list[int], seed: int) -> tuple[list[int], list[int]]:
    """Return a request's answers alone and beside ones of one token, which vLLM pads."""
    mine = (0, cut(tokens, 0, 20), seeded(seed))
    others = [(start, cut(tokens, 90 + start, 1), greedy(8)) for start in (3, 5, 7)]
    return run_staggered(llm, [mine])[0], run_staggered(llm, [mine, *others])[0]


def test_beside_requests_that_are_padded(llm: Any, tokens: list[int]) -> None:
    for seed in SEEDS:
        alone, beside = padded_neighbour(llm, tokens, seed)
        assert beside == alone, seed
