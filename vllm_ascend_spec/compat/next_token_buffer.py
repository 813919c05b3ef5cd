"""Tokens that stand in where a request samples none, while steps are scheduled ahead.

Why: a proposer writes them to a pinned buffer in each step and copies it to the device without
waiting (vllm/v1/spec_decode/llm_base_proposer.py:
SpecDecodeBaseProposer.prepare_next_token_ids_padded, and the same function of vllm-ascend). The
next step writes to the buffer again, and by then the host has waited for the copy only if drafts
were verified. So a head may read another request's token behind a piece of a prompt, and keeps what
it made of it in its KV cache.
How: the buffer is not pinned. ``CpuGpuBuffer.copy_to_gpu`` then pins a copy of it each time, which
is not used again before the device has read it.
Until: the method waits for its copy, or copies from memory that no other step writes to.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_ascend_spec.compat.registry import override


@override
class BufferOverride:
    """Mix into a drafter with a proposer of vLLM's or vllm-ascend's, before it in the bases."""

    @classmethod
    def create(cls, engine: Any) -> Any:
        """Build the drafter of an engine."""
        drafter = super().create(engine)  # type: ignore[misc]
        buffer = drafter.backup_next_token_ids
        buffer.cpu = torch.zeros_like(buffer.cpu, pin_memory=False)
        buffer.np = buffer.cpu.numpy()
        return drafter
