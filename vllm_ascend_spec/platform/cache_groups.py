"""One group of KV cache for a draft whose layers see windows of several sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Methods whose draft has layers of its own in its config; an MTP layer stands in its target's.
OF_OWN_LAYERS = ("draft_model", "eagle", "eagle3")
FLAG = "--disable-hybrid-kv-cache-manager"


def lay_one_group(vllm_config: VllmConfig) -> str | None:
    """Let vLLM keep the whole context for all layers where the draft's need one group.

    vLLM's drafters take one group (vllm/v1/spec_decode/llm_base_proposer.py:
    SpecDecodeBaseProposer.validate_same_kv_cache_group) and end the engine where layers with a
    window have another than those without. Without the hybrid manager all are in one; windows are
    kept.

    Args:
        vllm_config: of an engine with speculation, before vLLM has settled the manager.

    Returns:
        A warning; None where nothing was changed.

    Raises:
        ConfigError: the manager was asked for.
    """
    spec, scheduler = vllm_config.speculative_config, vllm_config.scheduler_config
    if spec is None or spec.method not in OF_OWN_LAYERS or not spec.draft_model_config:
        return None
    kinds = kinds_of(spec.draft_model_config.hf_text_config)
    if len(kinds) < 2 or scheduler.disable_hybrid_kv_cache_manager:
        return None
    about = (
        f"the draft has layers of {' and '.join(kinds)}, of which vLLM keeps the KV cache in "
        "several groups, and drafts with one"
    )
    if scheduler.disable_hybrid_kv_cache_manager is False:
        raise ConfigError("--no-disable-hybrid-kv-cache-manager", True, f"{about}; leave it out")
    scheduler.disable_hybrid_kv_cache_manager = True
    return (
        f"{FLAG} is set: {about}. Layers with a window, the target's too, keep the KV cache of "
        "their whole context."
    )


def kinds_of(config: Any) -> list[str]:
    """Return the kinds of attention of a draft's layers, by its config as transformers reads it."""
    layers = getattr(config, "layer_types", None) or ()
    own = set(layers[: getattr(config, "num_hidden_layers", len(layers))])
    if getattr(config, "sliding_window", None) is None:
        own.discard("sliding_attention")
    return sorted(own)
