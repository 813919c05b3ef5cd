"""EAGLE-3 heads with Llama or Qwen3 layers, as vLLM 0.30 loads them.

vllm/model_executor/models/llama_eagle3.py and vllm/model_executor/models/qwen3_eagle3.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from vllm_ascend_spec.checkpoint import config_json, target_states
from vllm_ascend_spec.checkpoint.architectures import llama
from vllm_ascend_spec.checkpoint.architectures.llama import LlamaVariant
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value
from vllm_ascend_spec.checkpoint.target_states import Settings, layers_of, shapes_outside_layers
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

LLAMA, QWEN3 = "Eagle3LlamaForCausalLM", "Eagle3Qwen3ForCausalLM"
# vLLM's class by architecture; vLLM renames those that are not named after EAGLE-3.
CLASSES = {
    "LlamaForCausalLM": LLAMA,
    "Eagle3LlamaForCausalLM": LLAMA,
    "LlamaForCausalLMEagle3": LLAMA,
    "PeagleLlamaForCausalLM": LLAMA,
    "PEagleDraftModel": LLAMA,
    "PeagleQwen3ForCausalLM": QWEN3,
    "Qwen3ForCausalLM": QWEN3,
    "Eagle3Qwen3ForCausalLM": QWEN3,
}
VARIANTS = {
    LLAMA: LlamaVariant(
        lambda config: (
            config_json.flag(config, "attention_bias"),
            config_json.flag(config, "attention_bias") or config_json.flag(config, "bias"),
        )
    ),
    QWEN3: llama.QWEN3,
}
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
# Number of states that vLLM reads if nothing says how many.
USUAL_STATES = 3
# Prefixes of layers; a single layer may have the name that the authors of EAGLE-3 gave it.
STACK, MIDLAYER = "layers.", "midlayer."
# vLLM builds this norm in every layer, but uses it only in the first.
LATER_NORM = re.compile(r"layers\.[1-9]\d*\.hidden_norm\.weight")


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Read and check what decides the tensors outside of the layers.

    Raises:
        InvalidCheckpointError: an entry is missing, of another type, or contradicts another one.
    """
    config_json.check_table(config, "eagle_config")
    eagle = config.get("eagle_config") or {}
    named = config.get(LAYER_IDS) or eagle.get(LAYER_IDS)
    ids = layers_of(named, LAYER_IDS, (2, 18, 33)) if named else None
    count = _num_states(config, eagle, ids)
    if not config_json.flag(eagle, "use_aux_hidden_state", True):
        return target_states.settings_of(config, None, 0)
    if ids is not None and len(ids) != count:
        raise InvalidCheckpointError(
            f"config.json: {LAYER_IDS} names {len(ids)} layers, but vLLM builds fc for "
            f"{count}; valid: with num_aux_hidden_states {len(ids)}"
        )
    return target_states.settings_of(config, ids, count)


def _num_states(
    config: Mapping[str, Any], eagle: Mapping[str, Any], ids: tuple[int, ...] | None
) -> int:
    """Return for how many states vLLM builds ``fc``."""
    is_qwen = class_of(config) == QWEN3
    by_list = ids if is_qwen or eagle.get(LAYER_IDS) else None
    default = len(by_list) if by_list else USUAL_STATES
    if is_qwen and config.get("num_aux_layers") is not None:
        return config_json.size(config, "num_aux_layers")
    return config_json.size(config, "num_aux_hidden_states", default)


def class_of(config: Mapping[str, Any]) -> str | None:
    """Return vLLM's class of a head; None if this package does not know its layers."""
    return CLASSES.get(config_json.architecture_of(config))


def table_of(config: Mapping[str, Any], settings: Settings, names: Collection[str]) -> Table | None:
    """Return the tensors of an EAGLE-3 head; None if this package does not know its layers.

    Args:
        config: the head's config.
        settings: what was read from it.
        names: names of the tensors that are there.

    Raises:
        InvalidCheckpointError: an entry of the config is missing or wrong.
    """
    name = class_of(config)
    if name is None:
        return None
    relative = VARIANTS[name]
    llama.check_settings(config)
    sizes = llama.sizes_of(config, relative)
    midlayer = any(name.startswith(MIDLAYER) for name in names)
    beside = next((name for name in names if name.startswith(STACK)), None)
    if midlayer and (sizes.layers != 1 or beside is not None):
        other = f"it has {printable(beside)}, too" if beside is not None else "it is one"
        raise InvalidCheckpointError(
            f"has {MIDLAYER}*, which stands for its only layer; {other}, and num_hidden_layers in "
            f"config.json is {short_value(sizes.layers)}"
        )
    later = llama.layer_shapes(config, sizes, relative)
    first = _first_layer(later, sizes.hidden)
    outside, optional = _outside(config, settings)
    if midlayer:
        outside |= {f"{MIDLAYER}{part}": shape for part, shape in first.items()}
    unused = filter(LATER_NORM.fullmatch, names)
    optional |= dict.fromkeys(unused, first["hidden_norm.weight"])
    return Table(
        name=name,
        outside=outside,
        stack=STACK,
        layers=0 if midlayer else sizes.layers,
        layer=lambda number: later if number else first,
        optional=optional,
    )


def _first_layer(layer: dict[str, Shape], hidden: int) -> dict[str, Shape]:
    """Return the tensors of the layer that reads embeddings and states side by side."""
    first = {**layer, "hidden_norm.weight": Shape((hidden,), "hidden_size")}
    for part in ("q_proj", "k_proj", "v_proj"):
        shape = layer[f"self_attn.{part}.weight"]
        first[f"self_attn.{part}.weight"] = Shape((shape.sizes[0], 2 * hidden), shape.because)
    return first


def _outside(
    config: Mapping[str, Any], settings: Settings
) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Return the required and the optional tensors outside of the layers."""
    outside, optional = shapes_outside_layers(settings, "the number of states")
    eagle, before = config.get("eagle_config") or {}, "norm_before_fc"
    if settings.num_states:
        if config_json.flag(eagle, before, config_json.flag(config, before)):
            states = outside["fc.weight"]
            outside["input_norm.weight"] = Shape(states.sizes[1:], states.because)
        if config_json.flag(config, "fc_norm"):
            for number in range(settings.num_states):
                shape = Shape((settings.target_hidden,), "target_hidden_size")
                outside[f"fc_norm.{number}.weight"] = shape
    return outside, optional
