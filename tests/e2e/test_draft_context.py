"""Requests longer than the draft model's context: they go on without drafts, the others with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from vllm import SamplingParams

from tests.engines import assert_same, token_ids
from tests.zoo import EVERY, TARGET
from vllm_ascend_spec import log
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.metrics.acceptance import from_engine

CONTEXT, LIMIT = 96, 256
METHODS = [
    pytest.param(name, marks=() if name in ("eagle", "draft_model") else pytest.mark.nightly)
    for name in ("eagle", "eagle3", "draft_model", "dflash", "dspark", "pard", "peagle")
]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return ``short(method) -> spec`` of a draft for texts of CONTEXT tokens."""

    def make(method: str) -> dict[str, Any]:
        folder = tmp_path_factory.getbasetemp() / f"short-{method}"
        if not folder.exists():
            shutil.copytree(EVERY[method]["model"], folder)
            place = Path(folder, "config.json")
            config = json.loads(place.read_text()) | {"max_position_embeddings": CONTEXT}
            place.write_text(json.dumps(config))
        return EVERY[method] | {"model": str(folder)}

    return make


def asked(
    llm: Any, prompts: list[str], lengths: list[int], max_tokens: int, first: int = 0
) -> list[Any]:
    """Return greedy answers to prompts of given lengths, in one batch, from ``first`` on."""
    tokens = llm.get_tokenizer().encode("\n".join(prompts[:8]), add_special_tokens=False)
    texts = [{"prompt_token_ids": tokens[40 * i : 40 * i + n]} for i, n in enumerate(lengths)]
    texts = texts[first:]
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return [answer.outputs[0] for answer in llm.generate(texts, sampling, use_tqdm=False)]


@pytest.mark.parametrize("method", METHODS)
def test_one_long_request_stops_nobody(
    method: str, short: Any, make_engine: Any, prompts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    log.log_once.cache_clear()
    # First: an engine takes the metrics of those before it away.
    plain = make_engine(max_model_len=LIMIT)
    llm = make_engine(short(method), max_model_len=LIMIT)
    assert sum("goes on without drafts" in record.message for record in caplog.records) <= 1
    before = from_engine(llm.get_metrics())
    # The first is past the context, the others come to its end.
    lengths = [CONTEXT + 20, 20, 30, 40]
    answers = asked(llm, prompts, lengths, 80)
    assert_same(token_ids(answers), token_ids(asked(plain, prompts, lengths, 80)))
    found = from_engine(llm.get_metrics()) - before
    # None of the drafts is beyond the context, and the three that are within it have some.
    assert 0 < found.num_draft_tokens <= 3 * sum(CONTEXT - n for n in lengths[1:])
    before = from_engine(llm.get_metrics())
    asked(llm, prompts, [CONTEXT - 20, *lengths[1:]], 20)
    beside_short = from_engine(llm.get_metrics()) - before
    assert beside_short.num_accepted_tokens > 0
    assert found.tokens_per_step > 1 + 0.6 * (beside_short.tokens_per_step - 1)


@pytest.mark.parametrize("is_async", [True, False])
def test_drafts_of_short_requests_are_those_without_the_long_one(
    is_async: bool, short: Any, make_engine: Any, prompts: list[str]
) -> None:
    engine = {"max_model_len": LIMIT, "async_scheduling": is_async}
    llm, plain = make_engine(short("eagle"), **engine), make_engine(max_model_len=LIMIT)
    # The first is past the context from its first token on.
    lengths, found = [CONTEXT + 20, 20, 30, 40], []
    for first in (0, 1):
        before = from_engine(llm.get_metrics())
        answers = token_ids(asked(llm, prompts, lengths, 48, first))
        assert_same(answers, token_ids(asked(plain, prompts, lengths, 48, first)))
        found.append(from_engine(llm.get_metrics()) - before)
    with_it, without = found
    assert with_it == without
    assert without.num_accepted_tokens > 0


def test_a_window_does_not_lengthen_the_context(
    short: Any, make_engine: Any, prompts: list[str]
) -> None:
    """Tokens keep their positions, and the draft has tables for so many."""
    within = {"ascend_spec": {"draft_window": 48}}
    llm = make_engine(short("eagle"), max_model_len=LIMIT, additional_config=within)
    warnings = speculation_of(llm.llm_engine.vllm_config).warnings
    assert any("tokens keep their positions" in warning for warning in warnings)
    before = from_engine(llm.get_metrics())
    asked(llm, prompts, [CONTEXT, CONTEXT + 9], 20)
    assert (from_engine(llm.get_metrics()) - before).num_drafts == 0
    too_long = {"ascend_spec": {"draft_window": CONTEXT}}
    with pytest.raises(ConfigError, match=f"no text with drafts is longer than {CONTEXT} tokens"):
        make_engine(short("eagle"), max_model_len=LIMIT, additional_config=too_long)


def test_a_batch_past_the_context_has_no_drafts(
    short: Any, make_engine: Any, prompts: list[str]
) -> None:
    llm = make_engine(short("eagle"), max_model_len=LIMIT)
    before = from_engine(llm.get_metrics())
    asked(llm, prompts, [CONTEXT, CONTEXT + 9], 20)
    assert (from_engine(llm.get_metrics()) - before).num_drafts == 0


def test_the_loop_of_vllm_verifies_no_zeros(
    short: Any, make_engine: Any, prompts: list[str]
) -> None:
    """It drafts for nobody beside such a request; what vLLM fills in is left out."""
    stock = {"ascend_spec": {"draft_loop": "stock"}}
    llm = make_engine(short("eagle"), max_model_len=LIMIT, additional_config=stock)
    before = from_engine(llm.get_metrics())
    asked(llm, prompts, [CONTEXT, 20], 20)
    assert (from_engine(llm.get_metrics()) - before).num_drafts == 0


def test_a_limit_that_was_asked_for(make_engine: Any, prompts: list[str]) -> None:
    llm = make_engine(EVERY["eagle"] | {"max_model_len": CONTEXT}, max_model_len=LIMIT)
    plain = make_engine(max_model_len=LIMIT)
    assert llm.llm_engine.vllm_config.model_config.model == TARGET
    lengths = [CONTEXT + 20, 20]
    answers = asked(llm, prompts, lengths, 40)
    assert_same(token_ids(answers), token_ids(asked(plain, prompts, lengths, 40)))
