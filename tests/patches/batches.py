"""A batch of vLLM's runner, in every version."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.worker.gpu_input_batch import InputBatch

# Of some versions alone.
OF_SOME: dict[str, Any] = {"pin_memory": False, "kernel_block_sizes": [16]}


def empty_batch(max_num_reqs: int, vocab_size: int, **more: Any) -> InputBatch:
    """Return a batch of no requests, of at most 32 tokens each."""
    taken = inspect.signature(InputBatch).parameters
    return InputBatch(
        max_num_reqs=max_num_reqs,
        max_model_len=32,
        max_num_batched_tokens=32,
        device=torch.device("cpu"),
        vocab_size=vocab_size,
        block_sizes=[16],
        max_num_blocks_per_req=[2],
        logitsprocs=LogitsProcessors(),
        **{name: value for name, value in OF_SOME.items() if name in taken},
        **more,
    )
