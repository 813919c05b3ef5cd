"""Attention sinks of a model that is not in bfloat16, on a CPU.

Why: a layer's sinks have the model's dtype (vllm/model_executor/models/gpt_oss.py:OAIAttention),
and the C++ op reads bfloat16 alone (csrc/cpu/cpu_attn.cpp: "For now sink must be bf16"). A gpt-oss
in float32 ends as it starts: "expected scalar type BFloat16 but found Float".
How: ``vllm._custom_ops.cpu_attention_with_kv_cache`` hands sinks on in bfloat16, which published
checkpoints have them in.
Until: the op reads float32, too.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm import _custom_ops

    stock = _custom_ops.cpu_attention_with_kv_cache

    @functools.wraps(stock)
    def cpu_attention_with_kv_cache(
        *args: Any,
        s_aux: torch.Tensor | None = None,  # [num_heads]
        **kwargs: Any,
    ) -> None:
        if s_aux is not None:
            s_aux = s_aux.to(torch.bfloat16)
        stock(*args, s_aux=s_aux, **kwargs)

    _patches.set(_custom_ops, "cpu_attention_with_kv_cache", cpu_attention_with_kv_cache)
