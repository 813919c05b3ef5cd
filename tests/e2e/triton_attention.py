"""vLLM's Triton attention and a GPU's way to have trees, in engines on a CPU.

Of what a GPU runs, the two kernels of vLLM are replaced by PyTorch, and ours by its reference or by
Triton's interpreter. Around them are vLLM's backend with its metadata, and ``CudaTreesMixin``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from vllm.v1.attention import selector
from vllm.v1.attention.backends import triton_attn
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from vllm_ascend_spec.ops.tree_attention import reference
from vllm_ascend_spec.platform.cpu import SpecCpuPlatform
from vllm_ascend_spec.worker import cpu
from vllm_ascend_spec.worker.cuda_trees import CudaTreesMixin
from vllm_ascend_spec.worker.vllm_runner import VllmRunnerMixin

BACKEND = "vllm.v1.attention.backends.triton_attn.TritonAttentionBackend"


class RunnerWithTriton(CudaTreesMixin, VllmRunnerMixin, CPUModelRunner):
    """vLLM's CPU runner with a GPU's trees."""

    patch_stages = ("cpu",)


def attend(
    q: torch.Tensor,  # [num_tokens, num_heads, head_size]
    k: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    v: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    out: torch.Tensor,  # [num_tokens, num_heads, head_size]
    **given: Any,
) -> None:
    """Do what ``unified_attention`` does."""
    reference.tree_attention(
        q,
        k,
        v,
        out,
        torch.full(q.shape[:1], -1),
        given["cu_seqlens_q"],
        given["seqused_k"],
        given["block_table"],
        scale=given["softmax_scale"],
        soft_cap=given["softcap"],
        window=given["window_size"][0] + 1,
        sinks=given["sinks"],
    )


def write(
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    value_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    slot_mapping: torch.Tensor,  # [num_tokens]
    *_: Any,
) -> None:
    """Do what ``triton_reshape_and_cache_flash`` does."""
    slots = slot_mapping[slot_mapping >= 0]
    blocks, places = slots // key_cache.shape[1], slots % key_cache.shape[1]
    is_there = torch.nonzero(slot_mapping >= 0).flatten()
    key_cache[blocks, places], value_cache[blocks, places] = key[is_there], value[is_there]


@contextmanager
def kernels_in_pytorch() -> Iterator[None]:
    """Let vLLM's Triton attention run here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_attn, "unified_attention", attend)
        patch.setattr(triton_attn, "triton_reshape_and_cache_flash", write)
        yield


@contextmanager
def triton_attention() -> Iterator[None]:
    """Let engines that are made here have vLLM's Triton backend, and a GPU's trees."""
    # vLLM keeps what it has chosen.
    selector._cached_get_attn_backend.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SpecCpuPlatform, "get_attn_backend_cls", lambda *_, **__: BACKEND)
        patch.setattr(cpu, "SpecCPUModelRunner", RunnerWithTriton)
        yield
    selector._cached_get_attn_backend.cache_clear()
