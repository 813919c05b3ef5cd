"""Fakes for what drafters without a draft model read of an engine and of a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.speculation import make_speculation
from vllm_ascend_spec.config.resolved import attach
from vllm_ascend_spec.methods.drafter import DrafterContext, drafter_class
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.methods.step import DraftStep

VOCAB, MAX_SEQS, MAX_LENGTH = 50, 8, 64


def make_config(num_drafts: int = 3, **speculative: Any) -> Any:
    """Return a fake for ``VllmConfig``."""
    spec = {"num_speculative_tokens_per_batch_size": None, "model": "a.B", **speculative}
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=num_drafts, **spec),
        model_config=SimpleNamespace(max_model_len=MAX_LENGTH, get_vocab_size=lambda: VOCAB),
        scheduler_config=SimpleNamespace(max_num_seqs=MAX_SEQS),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
    )


def make_batch(*requests: list[int]) -> Any:
    """Return a fake for ``InputBatch`` with these tokens, in arrays as vLLM's."""
    tokens = np.zeros((MAX_SEQS, MAX_LENGTH), dtype=np.int32)
    lengths = np.zeros(MAX_SEQS, dtype=np.int32)
    for index, request in enumerate(requests):
        tokens[index, : len(request)] = request
        lengths[index] = len(request)
    return SimpleNamespace(token_ids_cpu=tokens, num_tokens_no_spec=lengths)


def make_engine(vllm_config: Any, runner: Any = None, **asked: Any) -> DrafterContext:
    """Return what a drafter is made from; ``asked`` are values of its speculation."""
    device: Any = SimpleNamespace(type="cpu")
    speculation = make_speculation(**asked)
    if hasattr(vllm_config, "speculative_config"):
        attach(vllm_config, speculation)
    return DrafterContext(
        vllm_config=vllm_config, device=device, runner=runner, speculation=speculation
    )


def make_step(batch: Any, *sampled: list[int], num_drafts: int = 3, **given: Any) -> DraftStep:
    """Return a step that sampled these tokens, with what drafters on the host read."""
    others = dict.fromkeys(DraftStep.__dataclass_fields__)
    known = {"k": num_drafts, "sampled_token_ids": list(sampled), "batch": batch}
    return DraftStep(**{**others, **known, **given})


def drafter_of(method: str, family: str) -> Any:
    """Return the drafter's class of one of our methods."""
    return drafter_class(method, family, BUILT_IN[method].drafters[family])
