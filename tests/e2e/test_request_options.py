"""Whatever a request asks for, speculation does not change the answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from tests.engines import assert_same, token_ids
from tests.zoo import EVERY, KINDS


class NoRepeat(AdapterLogitsProcessor):
    """Forbids the last tokens of the output; depends on drafts, unlike a constant bias."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        if not (params.extra_args or {}).get("no_repeat"):
            return None

        def forbid(output: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[output[-6:]] = float("-inf")
            return logits

        return forbid


PROCESSORS = f"{__name__}:{NoRepeat.__qualname__}"
GREEDY: dict[str, dict[str, Any]] = {
    "repetition penalty": {"repetition_penalty": 1.2},
    "frequency and presence penalty": {"frequency_penalty": 0.5, "presence_penalty": 0.5},
    "logit bias": {"logit_bias": {11: 4.0, 262: -3.0}},
    "allowed tokens": {"allowed_token_ids": list(range(5, 600))},
    "bad words": {"bad_words": ["self", "def", "assertEqual"]},
    "min_tokens": {"min_tokens": 24, "ignore_eos": False, "stop_token_ids": [203, 262, 220]},
    "logits processor": {"extra_args": {"no_repeat": True}},
    "all at once": {
        "repetition_penalty": 1.1,
        "logit_bias": {11: 1.0},
        "bad_words": ["self"],
        "extra_args": {"no_repeat": True},
    },
}


@pytest.fixture(scope="module")
def plain_arguments() -> dict[str, Any]:
    return {"logits_processors": [PROCESSORS]}


@pytest.fixture(scope="module", params=KINDS)
def speculative(request: pytest.FixtureRequest, make_engine: Any) -> Any:
    return make_engine(EVERY[request.param], logits_processors=[PROCESSORS])


# With other versions, too; test_different_requests_in_one_batch has the others.
CORE = ("frequency and presence penalty", "min_tokens", "all at once")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.core] * (name in CORE)) for name in GREEDY]
)
def test_greedy_answer_is_the_same(
    name: str, expect: Any, speculative: Any, generate: Any, prompts: list[str]
) -> None:
    options = GREEDY[name]
    expected = token_ids(expect(prompts[:8], **options))
    assert_same(token_ids(generate(speculative, prompts[:8], **options)), expected)
    # The option did something, or the comparison shows nothing.
    assert expected != token_ids(expect(prompts[:8]))


STOPS: dict[str, dict[str, Any]] = {
    "left out": {"stop": ["self"]},
    "included": {"stop": ["self", "):"], "include_stop_str_in_output": True},
    "after min_tokens": {"stop": ["self"], "min_tokens": 10},
    "with logprobs": {"stop": ["self"], "logprobs": 1},
}


@pytest.mark.parametrize("name", list(STOPS))
def test_a_stop_string_ends_the_answer_at_the_same_token(
    name: str, expect: Any, speculative: Any, generate: Any, prompts: list[str]
) -> None:
    options = {**STOPS[name], "ignore_eos": False}
    expected = expect(prompts[:8], **options)
    actual = generate(speculative, prompts[:8], **options)
    assert_same(token_ids(actual), token_ids(expected))
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason)
        assert ours.stop_reason == theirs.stop_reason
        assert len(ours.logprobs or []) == len(theirs.logprobs or [])
        assert ours.cumulative_logprob == pytest.approx(theirs.cumulative_logprob, abs=1e-3)
    assert any(output.finish_reason == "stop" for output in expected)


@pytest.mark.parametrize(
    "turn", [pytest.param(turn, marks=[pytest.mark.core] * (turn < 2)) for turn in range(4)]
)
def test_different_requests_in_one_batch(
    turn: int, plain: Any, speculative: Any, prompts: list[str]
) -> None:
    """Several times, so that requests follow others of another kind in the same batch slots."""
    common = {"temperature": 0, "max_tokens": 48, "ignore_eos": True}
    parameters = [
        SamplingParams(**common, **GREEDY[name])
        for name in ("repetition penalty", "logit bias", "allowed tokens", "logits processor")
    ]
    parameters = parameters[turn:] + parameters[:turn]
    parameters += [SamplingParams(**common), SamplingParams(**{**common, "temperature": 0.9})]
    batch = prompts[: len(parameters)]
    expected = plain.generate(batch, parameters, use_tqdm=False)
    actual = speculative.generate(batch, parameters, use_tqdm=False)
    # The last one is sampled without a seed; it only has to be complete.
    assert_same(
        [list(output.outputs[0].token_ids) for output in actual[:-1]],
        [list(output.outputs[0].token_ids) for output in expected[:-1]],
    )
    assert len(actual[-1].outputs[0].token_ids) == 48


@pytest.mark.parametrize("num_logprobs", [0, 3])
def test_logprobs(
    num_logprobs: int, expect: Any, speculative: Any, generate: Any, prompts: list[str]
) -> None:
    expected = expect(prompts[:4], logprobs=num_logprobs)
    actual = generate(speculative, prompts[:4], logprobs=num_logprobs)
    assert_same(token_ids(actual), token_ids(expected))
    for ours, theirs in zip(actual, expected, strict=True):
        assert len(ours.logprobs) == len(ours.token_ids)
        for a, b in zip(ours.logprobs, theirs.logprobs, strict=True):
            assert a.keys() == b.keys()
            for token in a:
                assert a[token].logprob == pytest.approx(b[token].logprob, abs=2e-4)
                assert a[token].rank == b[token].rank


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}], ids=["top_k", "min_p", "top_p"]
)
def test_sampling_with_one_token_left_is_greedy(
    options: dict[str, Any], expect: Any, speculative: Any, generate: Any, prompts: list[str]
) -> None:
    """The sampled path end to end, where its answer is known."""
    expected = token_ids(expect(prompts[:8]))
    actual = generate(speculative, prompts[:8], temperature=1.0, **options)
    assert_same(token_ids(actual), expected)
