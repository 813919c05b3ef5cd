"""Checks that hold for every architecture without a table of its own.

They refuse only what no architecture of vLLM has; layers may differ on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value
from vllm_ascend_spec.checkpoint.safetensors import Tensor
from vllm_ascend_spec.checkpoint.tensors import layers_of

# How the names of tensors in a decoder's layers begin.
STACKS = (
    "model.layers.",
    "language_model.model.layers.",
    "model.language_model.layers.",
    "transformer.h.",
    "gpt_neox.layers.",
)
EMBEDDING = "model.embed_tokens.weight"
# If the config lists the layers one by one, they differ, and some are empty.
LISTED = "block_configs"
FEWEST_ALIKE = 3


def check(tensors: Mapping[str, Tensor], config: Mapping[str, Any], *, quantized: bool) -> None:
    """Raise if a checkpoint contradicts itself or its config.

    Raises:
        InvalidCheckpointError: a layer is missing or incomplete, or the embedding differs.
    """
    layers = config.get("num_hidden_layers")
    whole = isinstance(layers, int) and not isinstance(layers, bool)
    for stack in STACKS:
        found = layers_of(tensors, stack)
        if found and whole and LISTED not in config:
            _check_count(stack, found, int(layers or 0))
            if not quantized:
                _check_alike(stack, _by_layer(stack, tensors, min(int(layers or 0), len(found))))
    if not quantized:
        _check_embedding(tensors.get(EMBEDDING), config)


def _check_count(stack: str, found: set[int], layers: int) -> None:
    """Raise if one of the layers has no tensor; extra layers may have another use, such as MTP."""
    missing = next((n for n in range(min(layers, len(found) + 1)) if n not in found), None)
    if missing is not None or layers < 1:
        raise InvalidCheckpointError(
            f"has no tensor {stack}{missing or 0}.*; num_hidden_layers in config.json is "
            f"{short_value(layers)}"
        )


def _by_layer(stack: str, tensors: Mapping[str, Tensor], layers: int) -> list[frozenset[str]]:
    """Return the names of the tensors in each layer, without stack and number."""
    names: list[set[str]] = [set() for _ in range(layers)]
    for name in tensors:
        number, _, rest = name.removeprefix(stack).partition(".")
        if name.startswith(stack) and number.isdecimal() and int(number) < layers:
            names[int(number)].add(rest)
    return [frozenset(layer) for layer in names]


def _check_alike(stack: str, names: list[frozenset[str]]) -> None:
    """Raise if one layer in the middle lacks a tensor that all others have.

    First and last layers differ in many architectures, and so do layers of several kinds.
    """
    if len(names) <= FEWEST_ALIKE:
        return
    (common, count), *others = Counter(names).most_common()
    odd = next((n for n, layer in enumerate(names) if layer != common), 0)
    if count == len(names) - 1 and 0 < odd < len(names) - 1 and others[0][0] < common:
        lacking = min(common - names[odd])
        raise InvalidCheckpointError(
            f"has no tensor {printable(f'{stack}{odd}.{lacking}')}; the other layers have"
        )


def _check_embedding(tensor: Tensor | None, config: Mapping[str, Any]) -> None:
    sizes = [config.get("vocab_size"), config.get("hidden_size")]
    if tensor is None or not all(isinstance(size, int) for size in sizes):
        return
    if list(tensor.shape) != sizes:
        raise InvalidCheckpointError(
            f"{EMBEDDING} in {tensor.path.name} is {short_value(list(tensor.shape))}; valid: "
            f"{short_value(sizes)}, from vocab_size and hidden_size in config.json"
        )
