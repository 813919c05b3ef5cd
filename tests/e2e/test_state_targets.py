"""Targets whose layers keep a state (Qwen3.5): the answers are those of transformers in float32.

A rejected draft has to be gone from the state, whatever was drafted, preempted or cached.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.drafts import check_drafts, check_every_step_drafts, count, watch
from tests.e2e.recurrent import NEEDS_LAYERS, assert_logprobs_of_transformers
from tests.e2e.scripted import Scripted
from tests.engines import Generate, assert_same, token_ids
from tests.zoo import ZOO
from vllm_ascend_spec.patches import cpu_accepted_states as patch

pytestmark = NEEDS_LAYERS

QWEN35 = str(ZOO / "target-qwen35")
SPECS: dict[str, dict[str, Any]] = {
    "mtp": {"method": "mtp", "num_speculative_tokens": 3},
    "ngram": {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    },
    "suffix": {"method": "suffix", "num_speculative_tokens": 4},
    "scripted": {
        "method": "custom_class",
        "model": "tests.e2e.scripted.Scripted",
        "num_speculative_tokens": 3,
    },
}
# Without keys and values of layers with a state there is nothing to find a prefix by but the ends
# of blocks, which are as long as a state is large.
CACHES = {
    "prefix caching": {"enable_prefix_caching": True},
    "none": {"enable_prefix_caching": False},
}
NUM_PROMPTS = 16


@pytest.fixture(scope="module")
def engine_model() -> str:
    return QWEN35


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str], plain: Any) -> Iterator[list[list[int]]]:
    answers = token_ids(expect(prompts[:NUM_PROMPTS]))
    encode = plain.get_tokenizer().encode
    Scripted.texts = [
        encode(text) + answer for text, answer in zip(prompts[:NUM_PROMPTS], answers, strict=True)
    ]
    yield answers
    Scripted.texts = []


@pytest.mark.parametrize("method", [None, "mtp", "scripted"])
def test_logprobs_are_those_of_transformers(
    method: str | None, make_engine: Any, generate: Generate, prompts: list[str], expected: Any
) -> None:
    llm = make_engine(None if method is None else SPECS[method])
    outputs = generate(llm, prompts[:4], logprobs=0)
    assert_same(token_ids(outputs), expected[:4])
    assert_logprobs_of_transformers(QWEN35, outputs, Scripted.texts[:4])


# By day in pairs; suffix drafts as ngram does, of any length from a text that the host looks up.
BY_NIGHT = {
    *(("suffix", cache, batch) for cache in CACHES for batch in (1, 8)),
    *(("scripted", "prefix caching", 8), ("scripted", "none", 1)),
    *(("ngram", "prefix caching", 1), ("ngram", "none", 8)),
    *(("mtp", "prefix caching", 1), ("mtp", "none", 8)),
}
# Here, too: by day the MTP layer, which has keys and values of its own besides.
SUFFIX_BY_NIGHT = pytest.mark.nightly


@pytest.mark.parametrize(
    ("method", "cache", "batch"),
    [
        pytest.param(*case, marks=pytest.mark.nightly if case in BY_NIGHT else ())
        for case in itertools.product(SPECS, CACHES, (1, 8))
    ],
)
def test_answers_are_those_of_no_speculation(
    method: str,
    cache: str,
    batch: int,
    make_engine: Any,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    llm = make_engine(SPECS[method], **CACHES[cache])
    count = NUM_PROMPTS if batch > 1 else 4
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:count], batch))
    assert_same(answers, expected[:count])
    check_drafts(seen, SPECS[method]["num_speculative_tokens"], 1.2)
    if method == "mtp":
        check_every_step_drafts(seen, 3, answers)


# With one draft steps are as here, and shorter.
@pytest.mark.parametrize("num_drafts", [pytest.param(1, marks=pytest.mark.nightly), 5])
def test_other_numbers_of_drafts(
    num_drafts: int, make_engine: Any, generate: Generate, prompts: list[str], expected: Any
) -> None:
    llm = make_engine({"method": "mtp", "num_speculative_tokens": num_drafts})
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:NUM_PROMPTS])), expected)
    check_drafts(seen, num_drafts, 1.2)


@pytest.mark.parametrize("method", ["mtp", "scripted"])
def test_prompts_in_pieces(
    method: str, make_engine: Any, generate: Generate, prompts: list[str], expected: Any
) -> None:
    """Beside requests that decode; some pieces have one token."""
    llm = make_engine(SPECS[method], max_num_batched_tokens=41, max_num_seqs=4)
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:NUM_PROMPTS])), expected)
    assert seen.acceptance.num_accepted_tokens > 0


@pytest.mark.parametrize(
    ("method", "num_blocks"), [("mtp", 20), pytest.param("suffix", 34, marks=SUFFIX_BY_NIGHT)]
)
def test_preemption(
    method: str,
    num_blocks: int,
    make_engine: Any,
    generate: Generate,
    prompts: list[str],
    expect: Any,
) -> None:
    """Two requests fit, until both grow into another block of keys and values."""
    long = [text * 4 for text in prompts[:6]]
    llm = make_engine(
        SPECS[method], num_gpu_blocks_override=num_blocks, enable_prefix_caching=False
    )
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, long)), token_ids(expect(long)))
    assert seen.preemptions > 0
    assert seen.acceptance.num_accepted_tokens > 0


@pytest.mark.parametrize("method", ["mtp", pytest.param("suffix", marks=SUFFIX_BY_NIGHT)])
def test_a_prefix_is_found_and_its_state_is_right(
    method: str, make_engine: Any, generate: Generate, prompts: list[str], expect: Any
) -> None:
    """A second request goes on from blocks that the first one filled, drafts and all."""
    room = {"max_model_len": 1536}
    long = [text * 10 for text in prompts[:4]]
    expected = token_ids(expect(long, room))
    llm = make_engine(SPECS[method], **room, **CACHES["prefix caching"])
    assert_same(token_ids(generate(llm, long)), expected)
    before = count(llm, "vllm:prefix_cache_hits")
    assert_same(token_ids(generate(llm, long)), expected)
    assert count(llm, "vllm:prefix_cache_hits") > before


def test_states_that_are_left_where_vllm_leaves_them_are_noticed(
    make_engine: Any,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: vLLM's own places, of which steps without drafts know nothing."""
    llm = make_engine(SPECS["scripted"], seed=1)  # an engine of its own
    monkeypatch.setattr(patch, "commit_states", lambda *_: None)
    with pytest.raises(AssertionError):
        assert_same(token_ids(generate(llm, prompts[:NUM_PROMPTS])), expected)
