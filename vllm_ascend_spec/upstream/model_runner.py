"""List vLLM's options that force Model Runner V2, whatever else is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.upstream.ranges import vllm_is

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def options_of_v2(vllm_config: VllmConfig) -> dict[str, Any]:
    """Return the values of these options by name; None for an option that is not set."""
    if vllm_is(">=0.30"):
        return {
            "attention_config.hisparse_config": vllm_config.attention_config.hisparse_config,
            "watermark_config": vllm_config.watermark_config,
        }
    return {}
