"""Suffix trees beside a model: the model's drafts are right in every step, whoever drafts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.drafts import watch
from tests.e2e.test_suffix import drafter_of
from tests.engines import assert_same, token_ids
from tests.zoo import SPECS, folder_of
from vllm_ascend_spec.methods.hybrid.drafter import HybridMixin
from vllm_ascend_spec.methods.hybrid.request_state import RequestState
from vllm_ascend_spec.methods.loops.vllm.loop import VllmDraftLoop

MODELS = {
    "eagle": SPECS["hybrid"],
    "draft_model": {**SPECS["hybrid"], "model": str(folder_of("draft"))},
    "mtp": {**SPECS["mtp"], "method": "hybrid", "hybrid_model_method": "mtp"},
}
NUM_PROMPTS = 6


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts[:NUM_PROMPTS], max_tokens=64))


def drafts_of_model(
    llm: Any,
    generate: Any,
    prompts: list[str],
    prefers: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[list[list[int]], dict[Any, list[int]], int]:
    """Return the answers, the model's drafts by text, and in how many steps it was left out."""
    drafts: dict[Any, list[int]] = {}
    skipped = 0
    draft = HybridMixin.draft

    def watched(self: Any, step: Any) -> Any:
        nonlocal skipped
        result = draft(self, step)
        skipped += self.keeps_cache_only
        followed = self.suffix.followed[step.batch.req_ids[0]]
        model = followed.notes.last[1]
        if model is not None:
            text = step.batch.token_ids_cpu[0, : followed.num_tokens].tolist()
            if not step.batch_has_sampled:
                text[followed.num_tokens - len(step.tokens_on_host()[0]) :] = step.tokens_on_host()[
                    0
                ]
            drafts[tuple(text)] = list(model.tokens)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(HybridMixin, "draft", watched)
        patch.setattr(RequestState, "prefers_suffix", prefers)
        answers = token_ids(generate(llm, prompts[:NUM_PROMPTS], batch=1, max_tokens=64))
    return answers, drafts, skipped


@pytest.mark.parametrize("model", MODELS)
def test_the_models_cache_is_right_after_steps_of_the_trees(
    model: str,
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It drafts the same for the same text whether or not it was left out in between."""
    llm = make_engine({**MODELS[model], "suffix_decoding_max_cached_requests": 0})
    turns = iter(range(10**6))
    run = (llm, generate, prompts)
    answers, always, _ = drafts_of_model(*run, lambda *_: False, monkeypatch)
    assert_same(answers, expected)
    answers, between, skipped = drafts_of_model(*run, lambda *_: next(turns) % 3 > 0, monkeypatch)
    assert_same(answers, expected)
    assert skipped > 10
    same = always.keys() & between.keys()
    assert len(same) > 20
    assert {text: always[text] for text in same} == {text: between[text] for text in same}


def test_it_would_not_be_right_without_the_models_first_pass(
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the model does nothing at all in steps of the trees."""
    llm = make_engine({**MODELS["eagle"], "suffix_decoding_max_cached_requests": 0})
    propose = VllmDraftLoop.propose

    def nothing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.keeps_cache_only:
            return kwargs["next_token_ids"].new_empty((1, 0))
        return propose(self, *args, **kwargs)

    turns = iter(range(10**6))
    run = (llm, generate, prompts)
    _, always, _ = drafts_of_model(*run, lambda *_: False, monkeypatch)
    monkeypatch.setattr(VllmDraftLoop, "propose", nothing)
    answers, between, _ = drafts_of_model(*run, lambda *_: next(turns) % 3 > 0, monkeypatch)
    assert_same(answers, expected)
    same = always.keys() & between.keys()
    assert sum(always[text] != between[text] for text in same) > 0.1 * len(same)


def test_both_sides_draft_in_one_batch(
    make_engine: Any, generate: Any, prompts: list[str], expect: Any
) -> None:
    llm = make_engine(SPECS["hybrid"])
    sides: set[tuple[bool, bool]] = set()
    draft = HybridMixin.draft

    def watched(self: Any, step: Any) -> Any:
        result = draft(self, step)
        sides.add((bool(self.by_suffix), len(self.by_suffix) < len(step.batch.req_ids)))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HybridMixin, "draft", watched)
        with watch(llm) as seen:
            answers = token_ids(generate(llm, prompts[:16]))
    assert_same(answers, token_ids(expect(prompts[:16])))
    assert (True, True) in sides
    assert drafter_of(llm).forecasts is not None
    assert seen.acceptance.num_accepted_tokens > 0
