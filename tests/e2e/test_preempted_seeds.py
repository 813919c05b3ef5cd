"""A request with a seed gives the same text where it is preempted, whatever drafts."""

from __future__ import annotations

from typing import Any

import pytest
from vllm import SamplingParams

from tests.zoo import EVERY, KINDS_OF_DRAFTS, drafting
from vllm_ascend_spec.control.kept_drafts import KeptDraftsMixin
from vllm_ascend_spec.upstream.ranges import vllm_is

pytestmark = pytest.mark.skipif(
    vllm_is("<0.30"), reason="vLLM 0.23 has no place to hold a prompt's last token back"
)

# Blocks for three of the requests, or four; all of them begin.
ARGUMENTS: dict[str, Any] = {
    "block_size": 32,
    "max_model_len": 256,
    "num_gpu_blocks_override": 12,
    "enable_prefix_caching": False,
}
SEEDS = range(8)


def texts(llm: Any, prompts: list[str], *, together: bool) -> list[list[int]]:
    """Return the answers of eight seeded requests, in one batch or in some that fit the cache."""
    asked = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=48, ignore_eos=True) for seed in SEEDS
    ]
    batches = [range(8)] if together else [range(3), range(3, 6), range(6, 8)]
    answers = []
    for batch in batches:
        some = [prompts[place][:120] for place in batch]
        answers += llm.generate(some, [asked[place] for place in batch], use_tqdm=False)
    return [list(answer.outputs[0].token_ids) for answer in answers]


def alone_and_preempted(
    llm: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the answers alone, and those of a batch that does not fit the KV cache."""
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preempted = []
    preempt = scheduler._preempt_request

    def count(request: Any, *args: Any, **kwargs: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *args, **kwargs)

    monkeypatch.setattr(scheduler, "_preempt_request", count)
    alone = texts(llm, prompts, together=False)
    assert not preempted
    together = texts(llm, prompts, together=True)
    assert len(set(preempted)) >= 2, preempted
    assert not scheduler._kept
    return alone, together


@pytest.mark.parametrize(("method", "how"), KINDS_OF_DRAFTS)
def test_each_seed_repeats(
    method: str,
    how: str,
    make_engine: Any,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = make_engine(drafting(method, how), **ARGUMENTS)
    alone, together = alone_and_preempted(llm, prompts, monkeypatch)
    assert together == alone


@pytest.mark.nightly
@pytest.mark.parametrize(
    "arguments",
    [
        {"enable_prefix_caching": True},
        {"scheduling_policy": "priority"},
        {"max_num_batched_tokens": 64},
        {"additional_config": {"ascend_spec": {"verify_rule": "block"}}},
    ],
    ids=["prefix-cache", "priority", "chunks", "block-rule"],
)
@pytest.mark.parametrize("method", ["eagle", "draft_model", "ngram"])
def test_with_other_options(
    method: str,
    arguments: dict[str, Any],
    make_engine: Any,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = "greedy" if method == "ngram" else "probabilistic"
    if method == "ngram" and "additional_config" in arguments:
        pytest.skip("drafts of ngram are one-hot, so there is one rule")
    llm = make_engine(drafting(method, how), **ARGUMENTS | arguments)
    alone, together = alone_and_preempted(llm, prompts, monkeypatch)
    assert together == alone


def test_what_vllm_does_would_be_noticed(
    make_engine: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the drafts are dropped."""
    monkeypatch.setattr(KeptDraftsMixin, "_give_back", lambda self: self._kept.clear())
    llm = make_engine(drafting("eagle", "probabilistic"), **ARGUMENTS)
    alone, together = alone_and_preempted(llm, prompts, monkeypatch)
    assert together != alone


def test_every_way_to_draft_is_tried() -> None:
    assert {way.values[0] for way in KINDS_OF_DRAFTS} >= EVERY.keys() - {"pard", "peagle"}
