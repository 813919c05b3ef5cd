"""The part of an engine's configuration that proposers without a draft model read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

VOCAB, MAX_SEQS, MAX_LENGTH = 50, 8, 64


def make_config(num_drafts: int = 3, **speculative: Any) -> Any:
    """Return a stand-in for ``VllmConfig``."""
    spec = {"num_speculative_tokens_per_batch_size": None, "model": "a.B", **speculative}
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=num_drafts, **spec),
        model_config=SimpleNamespace(max_model_len=MAX_LENGTH, get_vocab_size=lambda: VOCAB),
        scheduler_config=SimpleNamespace(max_num_seqs=MAX_SEQS),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
    )


def make_batch(*requests: list[int]) -> Any:
    """Return a stand-in for ``InputBatch`` with these tokens, in arrays as vLLM's."""
    tokens = np.zeros((MAX_SEQS, MAX_LENGTH), dtype=np.int32)
    lengths = np.zeros(MAX_SEQS, dtype=np.int32)
    for index, request in enumerate(requests):
        tokens[index, : len(request)] = request
        lengths[index] = len(request)
    return SimpleNamespace(token_ids_cpu=tokens, num_tokens_no_spec=lengths)
