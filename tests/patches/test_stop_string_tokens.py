"""What a request gets in steps of several tokens is what it gets in steps of one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason, detokenizer
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.metrics.stats import IterationStats
from vllm.v1.outputs import LogprobsLists

from tests.patches.cases import TakeOut
from tests.zoo import TARGET
from vllm_ascend_spec.patches import stop_string_tokens

TEXT = "def test_self(self):\n    self.assertEqual(1, 2)\n    return über self\n" * 2
CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "one": {"stop": ["self"]},
    "across tokens": {"stop": ["ssertEq"]},
    "included": {"stop": ["self.as"], "include_stop_str_in_output": True},
    "several": {"stop": ["return", "Equal", "(self"]},
    "after min_tokens": {"stop": ["self"], "min_tokens": 9},
    "in a letter of several bytes": {"stop": ["ü"]},
    "never": {"stop": ["nowhere"]},
}
KINDS = (RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE, RequestOutputKind.FINAL_ONLY)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TARGET)


@pytest.fixture
def patched(take_out: TakeOut) -> None:
    take_out(stop_string_tokens)
    stop_string_tokens.apply()


@pytest.fixture
def stock(take_out: TakeOut) -> None:
    take_out(stop_string_tokens)


@dataclass
class Answer:
    """All that a person sees of an answer, and what is counted."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, float]] = field(default_factory=list)
    experts: list[int] = field(default_factory=list)
    reason: tuple[Any, Any] | None = None
    counted: int = 0
    aborted: bool = False


def logprobs_of(tokens: list[int]) -> LogprobsLists:
    ids = np.array(tokens)[:, None]
    return LogprobsLists(ids, -ids.astype(float), np.ones(len(tokens), dtype=int))


def run(
    tokenizer: Any,
    tokens: list[int],
    steps: list[int],
    kind: RequestOutputKind,
    end: FinishReason | None = FinishReason.LENGTH,
    **options: Any,
) -> Answer:
    """Process ``tokens``, so many a step, and put together what comes of them."""
    params = SamplingParams(output_kind=kind, logprobs=0, **options)
    request = EngineCoreRequest(
        request_id="inner",
        external_req_id="outer",
        prompt_token_ids=[5],
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    processor = OutputProcessor(tokenizer, log_stats=True)
    processor.add_request(request, "")
    answer, place, stats = Answer(), 0, IterationStats()
    for count in steps:
        new, place = tokens[place : place + count], place + count
        is_last = place >= len(tokens)
        output = EngineCoreOutput(
            "inner", list(new), new_logprobs=logprobs_of(new), routed_experts=np.array(new)
        )
        if is_last and end is not None:
            output.finish_reason, output.stop_reason = end, new[-1]
        done = processor.process_outputs([output], 1.0, stats)
        for said in done.request_outputs:
            add(answer, said.outputs[0], kind)
        answer.aborted |= bool(done.reqs_to_abort)
    answer.counted = stats.num_generation_tokens
    return answer


def add(answer: Answer, said: Any, kind: RequestOutputKind) -> None:
    if kind is not RequestOutputKind.DELTA:
        answer.text, answer.token_ids, answer.logprobs = "", [], []
    answer.text += said.text
    answer.token_ids += said.token_ids
    answer.logprobs += [{t: entry.logprob for t, entry in at.items()} for at in said.logprobs]
    if said.finish_reason is not None:
        answer.reason = (said.finish_reason, said.stop_reason)
        answer.experts = said.routed_experts.tolist()


def steps_of(total: int, seed: int) -> list[int]:
    """Cut ``total`` tokens into steps as drafts would; the first step, prefill, has one."""
    choose, steps = random.Random(seed), [1]
    while (left := total - sum(steps)) > 0:
        steps.append(min(left, choose.randint(1, 6)))
    return steps


@pytest.fixture(params=["fast", "slow"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detokenizer, "USE_FAST_DETOKENIZER", request.param == "fast")


@pytest.mark.usefixtures("patched", "way")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(CASES))
def test_steps_make_no_difference(tokenizer: Any, name: str, kind: RequestOutputKind) -> None:
    tokens = tokenizer.encode(TEXT)
    alone = run(tokenizer, tokens, [1] * len(tokens), kind, **CASES[name])
    assert alone.aborted == (name not in ("none", "never"))
    for seed in range(8):
        assert run(tokenizer, tokens, steps_of(len(tokens), seed), kind, **CASES[name]) == alone


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("end", [FinishReason.STOP, FinishReason.LENGTH, None])
def test_a_stop_string_comes_before_another_end_of_the_same_step(
    tokenizer: Any, end: FinishReason | None
) -> None:
    tokens = tokenizer.encode("import self\n")
    tokens.append(0)
    kind = RequestOutputKind.FINAL_ONLY
    alone = run(tokenizer, tokens, [1] * len(tokens), kind, end, stop=["self"])
    assert alone.reason == ("stop", "self")
    assert run(tokenizer, tokens, [1, len(tokens) - 1], kind, end, stop=["self"]) == alone


def test_without_the_patch_tokens_go_on_to_the_end_of_the_step(tokenizer: Any, stock: None) -> None:
    tokens = tokenizer.encode("import self, self, self")
    kind = RequestOutputKind.FINAL_ONLY
    alone = run(tokenizer, tokens, [1] * len(tokens), kind, stop=["self"])
    found = run(tokenizer, tokens, [1, len(tokens) - 1], kind, stop=["self"])
    assert found.text == alone.text
    assert found.token_ids == tokens
    assert found.counted > alone.counted == len(alone.token_ids)


def test_a_stream_that_cannot_be_copied_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Stream:
        pass

    def update(*_: Any) -> None:
        raise AssertionError("it would have been stepped twice")

    decoder = SimpleNamespace(stop=["x"], stream=Stream(), token_ids=[], update=update)
    assert stop_string_tokens.tokens_to_stop(decoder, [1, 2, 3]) == 3
