"""The suffix trees in a running engine: what they keep of requests that end, and of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from vllm import SamplingParams

from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.zoo import SPECS

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


def drafter_of(llm: Any) -> Any:
    worker = llm.llm_engine.model_executor.driver_worker.worker
    return worker.model_runner.drafter


@pytest.fixture(scope="module")
def llm(make_engine: Any) -> Any:
    return make_engine({**SPECS["suffix"], "suffix_decoding_max_cached_requests": 4})


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts[:8], max_tokens=24))


def finish(llm: Any) -> Iterator[Any]:
    """Run the engine until no request is left; yield the outputs of each step."""
    while llm.llm_engine.has_unfinished_requests():
        yield from llm.llm_engine.step()


def test_what_is_kept_is_bounded(
    llm: Any, generate: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    assert_same(token_ids(generate(llm, prompts[:8], max_tokens=24)), expected)
    cache = drafter_of(llm).suffix_cache
    assert len(cache.cached_requests) == 4
    # One step later nothing is followed of requests that ended.
    generate(llm, prompts[:1], max_tokens=2)
    assert len(drafter_of(llm).followed) == len(cache.active_requests) == 1


def test_an_answer_that_was_given_before_is_drafted(
    make_engine: Any, generate: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    """And none is without the trees of earlier answers."""
    accepted = {}
    for kept in (10000, 0):
        llm = make_engine({**SPECS["suffix"], "suffix_decoding_max_cached_requests": kept})
        for _ in range(2):
            with watch(llm) as seen:
                answers = token_ids(generate(llm, prompts[:8], max_tokens=24))
            assert_same(answers, expected)
        accepted[kept] = seen.acceptance.num_accepted_tokens
    # Up to 23 tokens of each of the 8 answers; a match grows as fast as its drafts.
    assert accepted[10000] > 100
    assert accepted[10000] > 1.5 * accepted[0]


def test_requests_that_are_aborted_leave_the_others_as_they_are(
    llm: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    for i in range(4):
        llm.llm_engine.add_request(f"abort-{i}", prompts[i], GREEDY)
    for _ in range(4):
        llm.llm_engine.step()
    llm.llm_engine.abort_request(["abort-0", "abort-2"])
    done = {output.request_id: output for output in finish(llm) if output.finished}
    assert_same(
        [list(done[f"abort-{i}"].outputs[0].token_ids) for i in (1, 3)], [expected[1], expected[3]]
    )
    assert len(drafter_of(llm).followed) <= 4


def test_an_id_that_is_used_again_is_another_request(
    llm: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    for i in (0, 1, 2):
        llm.llm_engine.add_request("again", prompts[i], GREEDY)
        for _ in range(3):
            llm.llm_engine.step()
        if i < 2:
            llm.llm_engine.abort_request(["again"])
    (output,) = [output for output in finish(llm) if output.finished]
    assert_same([list(output.outputs[0].token_ids)], [expected[2]])
