"""Where drafts cannot be trees on an NVIDIA GPU: their attention is vLLM's Triton backend's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.draft_tree import asked_for, has_tree
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError

# vLLM's name of it.
BACKEND = "TRITON_ATTN"
# vLLM's names of dtypes that a KV cache is not quantized to; the attention takes the model's alone.
PLAIN = ("auto", "bfloat16", "float16", "float32")
# A node sees all of its path.
SHORTEST_WINDOW = 64


def check_for_cuda(request: SpecInput) -> None:
    """Refuse options that trees are not possible with.

    Raises:
        ConfigError: naming the option.
    """
    if not has_tree(request):
        return
    engine, tree = request.engine, "{}={!r}".format(*asked_for(request))
    if engine.attention_backend not in (None, BACKEND):
        problem = f"not possible with {tree}, whose attention is {BACKEND!r}; leave it out"
        raise ConfigError("--attention-backend", engine.attention_backend, problem)
    if (cause := cause_in_cache(engine.kv_cache_dtype)) is not None:
        raise ConfigError(*asked_for(request), f"not possible with {cause}")


def cause_in_cache(dtype: str) -> str | None:
    """Return why attention along paths cannot read a KV cache; None if it can."""
    return None if dtype in PLAIN else f"kv_cache_dtype={dtype!r} yet; leave one out"


def cause_in_text(text: Mapping[str, Any]) -> str | None:
    """Return what in a text model's config keeps drafts from being a tree; None if nothing does."""
    window = text.get("sliding_window")
    is_short = isinstance(window, int) and 0 < window < SHORTEST_WINDOW
    found = {
        "ALiBi": has_alibi(text),
        f"a sliding window below {SHORTEST_WINDOW}": is_short
        and text.get("use_sliding_window", True),
    }
    return next((name for name, is_there in found.items() if is_there), None)


def has_alibi(text: Mapping[str, Any]) -> bool:
    """Tell whether attention is weighted by the distance of places."""
    attention = text.get("attn_config")
    return bool(
        text.get("alibi")
        or text.get("model_type") == "bloom"
        or text.get("position_embedding_type") == "alibi"
        or (isinstance(attention, Mapping) and attention.get("alibi"))
    )
