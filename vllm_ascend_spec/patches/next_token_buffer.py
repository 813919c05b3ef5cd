"""Tokens that stand in where a request samples none, while steps are scheduled ahead.

Why: in each step a proposer writes them to a pinned buffer and copies it to the device without
waiting
(vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer.prepare_next_token_ids_padded, and
the same function of vllm-ascend). The next step writes to the buffer again, and by then the host
has waited for the copy only if drafts were verified. So after a chunk of a prompt a head may read
another request's token, and the result stays in its KV cache.
How: the buffer is not pinned. ``CpuGpuBuffer.copy_to_gpu`` then pins a new copy each time, which is
not reused before the device has read it.
Until: the method waits for its copy, or copies from memory that no other step writes to.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_ascend_spec.patches.registry import override


@override
class BufferOverride:
    """Mixin that must precede vLLM's or vllm-ascend's proposer in the bases of a drafter."""

    @classmethod
    def create(cls, engine: Any) -> Any:
        """Build the drafter of an engine."""
        drafter = super().create(engine)  # type: ignore[misc]
        buffer = drafter.backup_next_token_ids
        buffer.cpu = torch.zeros_like(buffer.cpu, pin_memory=False)
        buffer.np = buffer.cpu.numpy()
        return drafter
