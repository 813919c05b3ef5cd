"""Memory of a target, its draft and their KV cache, from checkpoint headers and vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.checkpoint.files import read_checkpoint
from vllm_ascend_spec.config.resolved import SpecConfig

if TYPE_CHECKING:
    from vllm.config import VllmConfig

PROFILED = "known only when an engine starts: what --gpu-memory-utilization leaves"
IN_TARGET = "in the target's"


def memory_of(
    model: str | None, speculation: SpecConfig | None, engine: VllmConfig | None
) -> dict[str, Any]:
    """Return sizes in bytes, and how many tokens fit; None for what is unknown.

    Args:
        model: the target.
        speculation: the resolved speculation of the engine.
        engine: vLLM's configuration; None if it was not built.
    """
    found: dict[str, Any] = {
        "target_weights_bytes": weights_of(model),
        "draft_weights_bytes": _draft_weights(model, speculation),
        "kv_bytes_per_token": None,
        "kv_bytes_per_token_of_draft": None,
        "kv_space_bytes": None,
        "kv_space_from": None,
        "kv_tokens": None,
    }
    if engine is None:
        return found
    found["kv_bytes_per_token"] = kv_bytes_of(engine.model_config, engine)
    found["kv_bytes_per_token_of_draft"] = _draft_kv(speculation, engine)
    space = engine.cache_config.kv_cache_memory_bytes
    found["kv_space_bytes"] = space
    found["kv_space_from"] = _source(engine) if space is not None else PROFILED
    each = found["kv_bytes_per_token"], found["kv_bytes_per_token_of_draft"]
    if space is not None and None not in each and sum(each):
        block = engine.cache_config.block_size
        found["kv_tokens"] = space // (sum(each) * block) * block
    return found


def weights_of(model: str | None) -> int | None:
    """Return the bytes of a checkpoint's tensors; None if it is not local or not readable."""
    folder = Path(model or "").expanduser()
    if not model or not folder.is_dir():
        return None
    try:
        tensors = read_checkpoint(folder)
    except (InvalidCheckpointError, OSError):
        return None
    return sum(tensor.end - tensor.start for tensor in tensors.values())


def _draft_weights(model: str | None, speculation: SpecConfig | None) -> int | None:
    """Return the bytes of the draft's tensors; 0 if it has none or the target has them."""
    if speculation is None or not speculation.has_draft_model:
        return 0
    draft = speculation.options.get("model")
    return 0 if draft in (None, model) else weights_of(draft)


def kv_bytes_of(model_config: Any, engine: VllmConfig) -> int | None:
    """Return KV-cache bytes per token and device; None for models with recurrent state."""
    import torch
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE

    if model_config.is_hybrid or model_config.is_attention_free:
        return None
    name = engine.cache_config.cache_dtype
    dtype = model_config.dtype if name == "auto" else STR_DTYPE_TO_TORCH_DTYPE.get(name)
    if not isinstance(dtype, torch.dtype):
        return None
    vectors = 1 if model_config.use_mla else 2
    heads = 1 if model_config.use_mla else model_config.get_num_kv_heads(engine.parallel_config)
    layers = model_config.get_num_layers(engine.parallel_config)
    return int(vectors * heads * model_config.get_head_size() * layers * dtype.itemsize)


def _draft_kv(speculation: SpecConfig | None, engine: VllmConfig) -> int | None:
    if speculation is None or speculation.draft_loop is None:
        return 0
    draft = getattr(engine.speculative_config, "draft_model_config", None)
    return None if draft is None else kv_bytes_of(draft, engine)


def _source(engine: VllmConfig) -> str:
    import os

    variable = "VLLM_CPU_KVCACHE_SPACE"
    return variable if os.environ.get(variable) else "--kv-cache-memory-bytes"
