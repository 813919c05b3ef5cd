"""After a prompt that was read in pieces the drafts are those after one that was read whole.

The patch: ``vllm_ascend_spec/patches/prompt_chunk_end.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm import SamplingParams

from tests.ascend.engine import drafts_by_request, watch_drafts
from tests.zoo import SPECS
from vllm_ascend_spec.patches.prompt_chunk_end import PieceEndOverride

# Prompts of about 90 tokens, eight at a time.
PIECES = {"max_num_batched_tokens": 48, "enable_prefix_caching": False}
BY_NIGHT = [pytest.param(name, marks=pytest.mark.nightly) for name in ("eagle3", "mtp")]


@pytest.fixture
def drafts(generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what an engine drafts for some prompts, by request."""

    def of(llm: Any) -> list[Any]:
        seen: dict[str, Any] = {}
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        with monkeypatch.context() as patch:
            # To be put back.
            patch.setattr(scheduler, "update_draft_token_ids", scheduler.update_draft_token_ids)
            watch_drafts(llm, seen)
            generate(llm, prompts[:8], max_tokens=24)
        return drafts_by_request(seen)

    return of


@pytest.mark.parametrize("method", ["eagle", *BY_NIGHT])
def test_drafts_are_those_of_whole_prompts(method: str, make_engine: Any, drafts: Any) -> None:
    whole, pieces = make_engine(SPECS[method]), make_engine(SPECS[method], **PIECES)
    assert drafts(pieces) == drafts(whole)


def test_without_the_patch_they_would_differ(
    make_engine: Any, drafts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    expected = drafts(make_engine(SPECS["eagle"]))
    monkeypatch.setattr(PieceEndOverride, "_without_rest", lambda self, batch: batch)
    assert drafts(make_engine(SPECS["eagle"], **PIECES)) != expected


def test_a_prompt_of_embeddings_is_answered(make_engine: Any, prompts: list[str]) -> None:
    """vLLM would end the engine: it asks for a token id of each request. Drafts are worth less."""
    llm = make_engine(SPECS["eagle"], enable_prompt_embeds=True)
    ids = llm.get_tokenizer().encode(prompts[0])
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    embeds = runner.get_model().model.embed_tokens(torch.tensor(ids)).detach()
    params = SamplingParams(temperature=0, max_tokens=16)
    answers = llm.generate(
        [{"prompt_token_ids": ids}, {"prompt_embeds": embeds}], params, use_tqdm=False
    )
    by_ids, by_embeds = (answer.outputs[0].token_ids for answer in answers)
    assert by_embeds == by_ids
