"""The attention of drafts that are trees, on an NVIDIA GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.config.cuda_trees import BACKEND, cause_in_cache
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def set_tree_attention(vllm_config: VllmConfig) -> None:
    """Choose the attention backend of trees, if there are any.

    Raises:
        ConfigError: something besides the options that are checked before rules trees out.
    """
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    speculation = speculation_of(vllm_config)
    if not speculation.has_trees:
        return
    attention, parallel = vllm_config.attention_config, vllm_config.parallel_config
    model = vllm_config.model_config
    wanted = AttentionBackendEnum[BACKEND]
    others = {found for found in attention.backend_per_kind.values() if found != wanted}
    found = {
        f"attention_config.backend_per_kind={min(map(str, others), default='')}": bool(others),
        "context parallelism": parallel.decode_context_parallel_size > 1
        or parallel.prefill_context_parallel_size > 1,
        "enable_dbo": parallel.enable_dbo,
        "attention in both directions over images": model.is_mm_prefix_lm,
    }
    cause = next((f"{name} yet; leave it out" for name, there in found.items() if there), None)
    cause = cause or cause_in_cache(vllm_config.cache_config.cache_dtype)
    if cause is not None:
        option = speculation.sources["tree"]
        raise ConfigError(option, speculation.max_k, f"not possible with {cause}")
    attention.backend = wanted
