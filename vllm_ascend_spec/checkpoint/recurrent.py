"""Models whose layers keep a state of what they have read: recurrent ones and short convolutions.

A rejected draft has to be removed from the state again; in a KV cache it is just overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import text_of

# Of vllm/model_executor/models/registry.py, those whose classes have HasInnerState, IsHybrid or
# IsAttentionFree (vllm/model_executor/models/interfaces.py) and generate text.
ARCHITECTURES = frozenset(
    (
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "FalconH1ForCausalLM",
        "FalconMambaForCausalLM",
        "Glm5NextForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GraniteMoeHybridForCausalLM",
        "InternS2MobiusForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "JambaForCausalLM",
        "KimiK3ForConditionalGeneration",
        "KimiLinearForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "Lfm2VlForConditionalGeneration",
        "Mamba2ForCausalLM",
        "MambaForCausalLM",
        "MiniCPMV4_6ForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Nano_Omni_Reasoning_V3",
        "NemotronH_Nano_VL_V2",
        "NemotronH_Omni_Reasoning_V3",
        "NemotronH_Super_Omni_Reasoning_V3",
        "OlmoHybridForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForCausalLM",
        "Qwen4ExpForConditionalGeneration",
        "Zamba2ForCausalLM",
    )
)
# Those of them whose only state is that of Gated DeltaNet layers
# (vllm/model_executor/models/qwen3_next.py and qwen3_5.py).
GATED_DELTA_NET = frozenset(
    (
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    )
)
WITHOUT_STATE = ("attention", "full_attention")


def with_state(config: Mapping[str, Any]) -> str | None:
    """Return the architecture of a model whose layers keep a state; None for any other.

    Args:
        config: what ``config.json`` says. A model of such an architecture that lists attention
            layers alone has no state (vllm/config/model.py:ModelConfig.is_hybrid).
    """
    named, layers = config.get("architectures"), text_of(config).get("layer_types")
    if isinstance(layers, list) and layers and all(layer in WITHOUT_STATE for layer in layers):
        return None
    found = named if isinstance(named, list) else []
    return next((name for name in found if name in ARCHITECTURES), None)
