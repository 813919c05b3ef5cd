"""DFlash heads, as vLLM 0.30 loads them (vllm/model_executor/models/qwen3_dflash.py).

Their layers are Qwen3's; the names of tensors do not begin with ``model.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint import config_json, target_states
from vllm_ascend_spec.checkpoint.architectures import llama
from vllm_ascend_spec.checkpoint.architectures.llama import LlamaVariant
from vllm_ascend_spec.checkpoint.masks import DFLASH
from vllm_ascend_spec.checkpoint.target_states import (
    Settings,
    check_layers,
    check_width,
    layers_of,
    shapes_outside_layers,
)
from vllm_ascend_spec.checkpoint.tensors import Table

ARCHITECTURE = "DFlashDraftModel"
LAYER_IDS = "target_layer_ids"
OPTION = f"{DFLASH}.{LAYER_IDS}"


def _both_biases(config: Mapping[str, Any]) -> tuple[bool, bool]:
    bias = config_json.flag(config, "attention_bias")
    return bias, bias


# As Qwen3, except for the bias of o_proj.
VARIANT = LlamaVariant(
    _both_biases, kv_heads=32, head_dim=128, head_norms=True, not_null=("head_dim",)
)


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Read and check what decides the tensors outside of the layers.

    Raises:
        InvalidCheckpointError: an entry is missing, or of another type.
    """
    config_json.check_table(config, DFLASH)
    own = config.get(DFLASH) or {}
    uses_states = config_json.flag(own, "use_aux_hidden_state", True)
    ids = layers_of(own.get(LAYER_IDS), OPTION, (1, 17, 32)) if uses_states else None
    return target_states.settings_of(config, ids, len(ids or ()))


def check_target(settings: Settings, target: Mapping[str, Any]) -> None:
    """Raise unless the target has the states that a head reads.

    Args:
        settings: the head's settings.
        target: the text part of the target's config.

    Raises:
        InvalidCheckpointError: they have another width, or come from layers that do not exist.
    """
    check_width(settings.target_hidden, target)
    layers = target.get("num_hidden_layers")
    if settings.layer_ids is not None and isinstance(layers, int):
        check_layers(settings.layer_ids, OPTION, layers - 1)


def table_of(config: Mapping[str, Any], settings: Settings) -> Table:
    """Return the tensors of a head.

    Raises:
        InvalidCheckpointError: an entry of the config is missing or wrong.
    """
    llama.check_settings(config)
    sizes = llama.sizes_of(config, VARIANT)
    layer = llama.layer_shapes(config, sizes, VARIANT)
    outside, optional = shapes_outside_layers(settings, LAYER_IDS)
    return Table(
        name=ARCHITECTURE,
        outside={**outside, "hidden_norm.weight": outside["norm.weight"]},
        stack="layers.",
        layers=sizes.layers,
        layer=lambda number: layer,
        optional=optional,
    )
