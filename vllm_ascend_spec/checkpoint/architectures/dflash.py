"""DFlash heads, as vLLM 0.30 loads them (vllm/model_executor/models/qwen3_dflash.py).

Their layers are Qwen3's; the names of tensors do not begin with ``model.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.architectures import llama
from vllm_ascend_spec.checkpoint.architectures.llama import EMBEDDING, HEAD, VOCAB, LlamaVariant
from vllm_ascend_spec.checkpoint.masks import DFLASH
from vllm_ascend_spec.checkpoint.target_states import (
    check_layers,
    check_width,
    layers_of,
)
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

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


@dataclass(frozen=True)
class Settings:
    """What a head reads and drafts, from its config.

    Attributes:
        layer_ids: the target's layers whose output states it reads, counted from 0; None if it
            reads the target's last states.
        target_hidden: width of each state.
        hidden: the head's own width.
        vocab: number of tokens of the target.
        draft_vocab: number of tokens that it can draft.
    """

    layer_ids: tuple[int, ...] | None
    target_hidden: int
    hidden: int
    vocab: int
    draft_vocab: int


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Read and check what decides the tensors outside of the layers.

    Raises:
        InvalidCheckpointError: an entry is missing, or of another type.
    """
    config_json.check_table(config, DFLASH)
    own = config.get(DFLASH) or {}
    hidden, vocab = config_json.size(config, "hidden_size"), config_json.size(config, "vocab_size")
    uses_states = config_json.flag(own, "use_aux_hidden_state", True)
    return Settings(
        layer_ids=layers_of(own.get(LAYER_IDS), OPTION, (1, 17, 32)) if uses_states else None,
        target_hidden=config_json.size(config, "target_hidden_size", hidden),
        hidden=hidden,
        vocab=vocab,
        draft_vocab=config_json.size(config, "draft_vocab_size", vocab),
    )


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
    hidden = Shape((settings.hidden,), "hidden_size")
    outside = {"norm.weight": hidden, "hidden_norm.weight": hidden}
    if settings.layer_ids is not None:
        states = len(settings.layer_ids) * settings.target_hidden
        because = f"hidden_size, target_hidden_size and {LAYER_IDS}"
        outside["fc.weight"] = Shape((settings.hidden, states), because)
    # With another width or vocabulary than the target's, a head cannot use the target's tensors.
    embedding = Shape((settings.vocab, settings.hidden), VOCAB)
    head = Shape((settings.draft_vocab, settings.hidden), "draft_vocab_size and hidden_size")
    optional: dict[str, Shape] = {}
    same_width = settings.target_hidden == settings.hidden
    (optional if same_width else outside)[EMBEDDING] = embedding
    same_vocab = settings.draft_vocab == settings.vocab
    (optional if same_width and same_vocab else outside)[HEAD] = head
    return Table(
        name=ARCHITECTURE,
        outside=outside,
        stack="layers.",
        layers=sizes.layers,
        layer=lambda number: layer,
        optional=optional,
    )
