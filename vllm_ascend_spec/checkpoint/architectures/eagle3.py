"""EAGLE-3 heads with Llama or Qwen3 layers, as vLLM 0.30 loads them.

vllm/model_executor/models/llama_eagle3.py and vllm/model_executor/models/qwen3_eagle3.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.architectures import llama
from vllm_ascend_spec.checkpoint.architectures.llama import EMBEDDING, HEAD, VOCAB, LlamaVariant
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value
from vllm_ascend_spec.checkpoint.target_states import layers_of
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


@dataclass(frozen=True)
class Settings:
    """What a head reads and drafts, from its config.

    Attributes:
        uses_states: whether it reads states of the target's inner layers, or only the last state.
        layer_ids: the target's layers that the states come from; None for vLLM's default.
        num_states: number of states that it reads.
        target_hidden: width of each state.
        hidden: the head's own width.
        vocab: number of tokens of the target.
        draft_vocab: number of tokens that it can draft.
    """

    uses_states: bool
    layer_ids: tuple[int, ...] | None
    num_states: int
    target_hidden: int
    hidden: int
    vocab: int
    draft_vocab: int


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Read and check what decides the tensors outside of the layers.

    Raises:
        InvalidCheckpointError: an entry is missing, of another type, or contradicts another one.
    """
    config_json.check_table(config, "eagle_config")
    eagle = config.get("eagle_config") or {}
    hidden, vocab = config_json.size(config, "hidden_size"), config_json.size(config, "vocab_size")
    named = config.get(LAYER_IDS) or eagle.get(LAYER_IDS)
    ids = layers_of(named, LAYER_IDS, (2, 18, 33)) if named else None
    settings = Settings(
        uses_states=config_json.flag(eagle, "use_aux_hidden_state", True),
        layer_ids=ids,
        num_states=_num_states(config, eagle, ids),
        target_hidden=config_json.size(config, "target_hidden_size", hidden),
        hidden=hidden,
        vocab=vocab,
        draft_vocab=config_json.size(config, "draft_vocab_size", vocab),
    )
    if settings.uses_states and ids is not None and len(ids) != settings.num_states:
        raise InvalidCheckpointError(
            f"config.json: {LAYER_IDS} names {len(ids)} layers, but vLLM builds fc for "
            f"{settings.num_states}; valid: with num_aux_hidden_states {len(ids)}"
        )
    return settings


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
    hidden, states = settings.hidden, settings.num_states * settings.target_hidden
    outside = {"norm.weight": Shape((hidden,), "hidden_size")}
    optional: dict[str, Shape] = {}
    if settings.uses_states:
        because = "hidden_size, target_hidden_size and the number of states"
        outside["fc.weight"] = Shape((hidden, states), because)
        eagle = config.get("eagle_config") or {}
        before = "norm_before_fc"
        if config_json.flag(eagle, before, config_json.flag(config, before)):
            outside["input_norm.weight"] = Shape((states,), because)
        if config_json.flag(config, "fc_norm"):
            for number in range(settings.num_states):
                shape = Shape((settings.target_hidden,), "target_hidden_size")
                outside[f"fc_norm.{number}.weight"] = shape
    # With another width or vocabulary than the target's, a head cannot use the target's tensors.
    embedding = Shape((settings.vocab, hidden), VOCAB)
    head = Shape((settings.draft_vocab, hidden), "draft_vocab_size and hidden_size")
    same_width = settings.target_hidden == hidden
    (optional if same_width else outside)[EMBEDDING] = embedding
    same_vocab = settings.draft_vocab == settings.vocab
    (optional if same_width and same_vocab else outside)[HEAD] = head
    return outside, optional
