"""Use a single KV cache group for a draft that mixes full and sliding-window attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Methods whose draft has its own layers in its own config; MTP layers are in the target's.
OF_OWN_LAYERS = ("draft_model", "eagle", "eagle3")
FLAG = "--disable-hybrid-kv-cache-manager"


def set_one_group(vllm_config: VllmConfig) -> str | None:
    """Turn the hybrid KV cache manager off if the draft's layers would need several groups.

    vLLM's drafters support one group (vllm/v1/spec_decode/llm_base_proposer.py:
    SpecDecodeBaseProposer.validate_same_kv_cache_group) and end the engine if layers with a window
    are in another group than those without. Without the hybrid manager all layers share one group,
    which keeps the whole context; attention windows stay.

    Args:
        vllm_config: configuration of an engine, before vLLM decides whether to use the manager.

    Returns:
        A warning; None if nothing was changed.

    Raises:
        ConfigError: the user requested the manager.
    """
    spec, scheduler = vllm_config.speculative_config, vllm_config.scheduler_config
    if spec is None or spec.method not in OF_OWN_LAYERS or not spec.draft_model_config:
        return None
    kinds = kinds_of(spec.draft_model_config.hf_text_config)
    if len(kinds) < 2 or scheduler.disable_hybrid_kv_cache_manager:
        return None
    about = (
        f"the draft has layers of {' and '.join(kinds)}, for which vLLM would keep several KV "
        "cache groups, but it drafts with one"
    )
    if scheduler.disable_hybrid_kv_cache_manager is False:
        raise ConfigError("--no-disable-hybrid-kv-cache-manager", True, f"{about}; leave it out")
    scheduler.disable_hybrid_kv_cache_manager = True
    return (
        f"{FLAG} is set: {about}. Layers with a window, also the target's, keep the KV cache of "
        "the whole context."
    )


def kinds_of(config: Any) -> list[str]:
    """Return the attention types of a draft's layers, from its config as transformers reads it."""
    layers = getattr(config, "layer_types", None) or ()
    own = set(layers[: getattr(config, "num_hidden_layers", len(layers))])
    if getattr(config, "sliding_window", None) is None:
        own.discard("sliding_attention")
    return sorted(own)
