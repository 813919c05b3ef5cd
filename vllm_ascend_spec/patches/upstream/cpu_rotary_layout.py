"""Rotary positions are wrong for queries and keys laid out by head, on a CPU.

Why: the C++ op assumes that the last dimension holds all heads, and that the stride of the
dimension before it leads from token to token. MLA passes queries [num_tokens, num_heads, rope_dim],
a slice of wider heads (vllm/model_executor/layers/mla.py:MultiHeadLatentAttentionWrapper): some are
rotated by another token's position and the rest not at all. Keys [num_tokens, 1, rope_dim] are
wrong from the second token on. So the logits of DeepSeek's models are wrong.
How: ``RotaryEmbedding.forward_cpu`` flattens such tensors to one row per token before it calls the
op.
Until: the op handles the dimensions of its inputs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def by_token(x: torch.Tensor) -> torch.Tensor:
    """Flatten ``x`` [num_tokens, num_heads, head_dim] to the two dimensions that the op reads."""
    return x.flatten(1).contiguous()


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    stock = RotaryEmbedding.forward_cpu

    @functools.wraps(stock)
    def forward_cpu(
        self: Any,
        positions: torch.Tensor,  # [num_tokens]
        query: torch.Tensor,  # [num_tokens, num_heads * head_dim] or [num_tokens, num_heads, …]
        key: torch.Tensor | None = None,  # likewise
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if query.ndim < 3:
            return stock(self, positions, query, key)
        turned, keys = stock(
            self, positions, by_token(query), None if key is None else by_token(key)
        )
        return turned.view(query.shape), None if key is None else keys.view(key.shape)

    _patches.set(RotaryEmbedding, "forward_cpu", forward_cpu)
