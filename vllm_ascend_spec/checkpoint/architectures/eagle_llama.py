"""EAGLE heads with Llama layers, as vLLM 0.30's ``llama_eagle.py`` loads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.architectures.llama import (
    EMBEDDING,
    HEAD,
    LLAMA,
    VOCAB,
    check_settings,
    layer_shapes,
    sizes_of,
)
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

ARCHITECTURES = ("LlamaForCausalLM", "EagleLlamaForCausalLM")
# The first layer does not normalize its input.
FIRST_NORM = "input_layernorm.weight"


def table_of(architecture: str, config: Mapping[str, Any]) -> Table | None:
    """Return the tensors of an EAGLE head with Llama layers, or None for another head.

    Raises:
        InvalidCheckpointError: an entry of the config is missing or wrong.
    """
    if architecture not in ARCHITECTURES:
        return None
    check_settings(config)
    sizes = sizes_of(config, LLAMA)
    layer = layer_shapes(config, sizes, LLAMA)
    first = {name: shape for name, shape in layer.items() if name != FIRST_NORM}
    return Table(
        name="EagleLlamaForCausalLM",
        outside={"fc.weight": Shape((sizes.hidden, 2 * sizes.hidden), "hidden_size")},
        stack="layers.",
        layers=sizes.layers,
        layer=lambda number: layer if number else first,
        optional={EMBEDDING: Shape((sizes.vocab, sizes.hidden), VOCAB)},
        hints={HEAD: "an EAGLE head uses its target's; leave it out of the file"},
    )
