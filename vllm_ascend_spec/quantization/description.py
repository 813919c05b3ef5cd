"""``quant_model_description.json``: which of a checkpoint's layers are quantized, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import parse_object
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value
from vllm_ascend_spec.checkpoint.files import read_checkpoint
from vllm_ascend_spec.checkpoint.safetensors import Tensor

NAME = "quant_model_description.json"
FLOAT, STATIC, DYNAMIC = "FLOAT", "W8A8", "W8A8_DYNAMIC"
TYPES = (FLOAT, STATIC, DYNAMIC)
WEIGHT = ".weight"
# Tensors beside the weight, by suffix: dtypes and number of elements; None means one per output.
PARTS: dict[str, dict[str, tuple[tuple[str, ...], int | None]]] = {
    STATIC: {
        ".input_scale": (("F32", "BF16", "F16"), 1),
        ".input_offset": (("F32", "BF16", "F16", "I8", "I32"), 1),
        # In float16 models, an int64 that holds the bits of a float32.
        ".deq_scale": (("F32", "I64"), None),
        ".quant_bias": (("I32",), None),
    },
    DYNAMIC: {".weight_scale": (("F32", "BF16", "F16"), None)},
}
# Layers that vLLM fuses, and the names of their parts.
PACKED = {
    "qkv_proj": ["q_proj", "k_proj", "v_proj"],
    "gate_up_proj": ["gate_proj", "up_proj"],
    # DeepSeek's.
    "fused_qkv_a_proj": ["q_a_proj", "kv_a_proj_with_mqa"],
}
EXPERT = re.compile(r"(.*\.experts)\.\d+\.")
# Biases that ModelSlim adds to norms; of an indexer's keys the model has one itself.
ADDED_BIAS = re.compile(r"(?<!\bindexer\.k_)norm\.bias$")
# Keys about the file: their type, and its name in messages.
ABOUT: dict[str, tuple[type, str]] = {
    "model_quant_type": (str, "text"),
    "version": (str, "text"),
    "metadata": (dict, "an object"),
    "optional": (dict, "an object"),
}
# Nested keys under "optional" that lead to the rotation matrix.
ROTATION = ("quarot", "rotation_map", "global_rotation")
# Keys about the whole model, and the values with which they quantize nothing more.
WHOLE: dict[str, tuple[Any, ...]] = {
    "kv_cache_type": (None, "", FLOAT, "None"),
    "kv_quant_type": (None, "", FLOAT, "None"),
    "fa_quant_type": (None, "", FLOAT, "None"),
}


@dataclass(frozen=True)
class Description:
    """The content of the file.

    Attributes:
        types: quantization types of the weights, by the tensor's name without ``.weight``.
        is_rotated: whether a matrix rotates the target's hidden states (QuaRot), which a head that
            drafts from them has to know.
    """

    types: Mapping[str, str]
    is_rotated: bool = False

    def type_of(self, prefix: str, parts: Iterable[str] | None = None) -> str:
        """Return how a layer is quantized.

        Args:
            prefix: the layer's name.
            parts: last parts of the names of the layers packed in this one, such as ``q_proj``.

        Raises:
            InvalidCheckpointError: some packed layers are not described, or their types differ.
        """
        if parts is None:
            return self.types.get(prefix, FLOAT)
        head, dot, _ = prefix.rpartition(".")
        found = {f"{head}{dot}{part}": self.types.get(f"{head}{dot}{part}") for part in parts}
        if set(found.values()) == {None}:
            return FLOAT
        for name, kind in found.items():
            if kind is None:
                raise InvalidCheckpointError(
                    f"{NAME} has no {printable(name + WEIGHT)}; valid: {valid()}"
                )
        kinds = sorted(set(filter(None, found.values())))
        if len(kinds) > 1:
            names = ", ".join(f"{printable(name)}: {kind}" for name, kind in found.items())
            raise InvalidCheckpointError(f"{NAME}: fused layers have different types ({names})")
        return kinds[0]

    def type_of_experts(self, prefix: str) -> str:
        """Return how a layer's experts are quantized.

        Args:
            prefix: the layer's name, with which its experts' names begin.

        Raises:
            InvalidCheckpointError: their types differ, or have one range for all activations.
        """
        found = [(n, kind) for n, kind in self.types.items() if n.startswith(f"{prefix}.")]
        for name, kind in found:
            if kind != found[0][1]:
                told = ", ".join(f"{printable(n)}: {k}" for n, k in (found[0], (name, kind)))
                raise InvalidCheckpointError(f"{NAME}: experts of a layer differ ({told})")
            if kind == STATIC:
                raise InvalidCheckpointError(
                    f"{NAME}: {printable(name + WEIGHT)} is {kind}; valid: {DYNAMIC!r}"
                )
        return found[0][1] if found else FLOAT


def read_description(folder: Path) -> Description:
    """Read the description in a folder.

    Raises:
        InvalidCheckpointError: there is none, or an entry is wrong; the message names its key.
        OSError: it cannot be read.
    """
    path = folder / NAME
    if not path.is_file():
        raise InvalidCheckpointError(
            f"has no {NAME}; valid with --quantization ascend: a checkpoint by ModelSlim, or leave "
            "the option out"
        )
    return parse_description(parse_object(NAME, path.read_bytes(), unique=True))


def parse_description(content: Mapping[str, Any]) -> Description:
    """Parse a description.

    Raises:
        InvalidCheckpointError: an entry is wrong; the message names its key.
    """
    for key, (kind, called) in ABOUT.items():
        if not isinstance(content.get(key), kind | None):
            raise InvalidCheckpointError(
                f"{NAME}: {key} is {short_value(content[key])}; valid: {called}"
            )
    for key, unset in WHOLE.items():
        if content.get(key) not in unset:
            raise InvalidCheckpointError(
                f"{NAME}: {key} is {short_value(content[key])}, which only vllm-ascend "
                "has, on an NPU"
            )
    types = {}
    for key, value in content.items():
        if ADDED_BIAS.search(key):
            raise InvalidCheckpointError(
                f"{NAME}: {printable(key)} is of a norm; only vllm-ascend has biases there"
            )
        if not key.endswith(WEIGHT):
            continue
        if value not in TYPES:
            raise InvalidCheckpointError(
                f"{NAME}: {printable(key)} is {short_value(value)}; valid: {valid()}"
            )
        types[key.removesuffix(WEIGHT)] = value
    if not types:
        raise InvalidCheckpointError(f"{NAME} names no weight; valid: NAME.weight: {valid()}")
    for name, kind in types.items():
        for key in (name + suffix for suffix in PARTS.get(kind, ())):
            if content.get(key, kind) != kind:
                raise InvalidCheckpointError(
                    f"{NAME}: {printable(key)} is {short_value(content[key])}; valid: {kind!r}, as "
                    "the weight is"
                )
    return Description(types, _is_rotated(content.get("optional")))


def _is_rotated(optional: Any) -> bool:
    for key in ROTATION:
        optional = optional.get(key) if isinstance(optional, dict) else None
    return optional is not None


def check_checkpoint(folder: Path) -> Description:
    """Check a quantized checkpoint without loading it.

    Raises:
        InvalidCheckpointError: the description or a tensor is wrong; the message names its key.
        OSError: a file cannot be read.
    """
    description, tensors = read_description(folder), read_checkpoint(folder)
    for name, kind in description.types.items():
        weight = tensors.get(name + WEIGHT)
        if weight is None:
            raise InvalidCheckpointError(
                f"{NAME} has {printable(name + WEIGHT)}, and no file has that tensor"
            )
        if kind != FLOAT:
            _check_layer(name, kind, weight, tensors)
        elif weight.dtype == "I8":
            raise InvalidCheckpointError(f"{printable(name + WEIGHT)} is int8, and FLOAT by {NAME}")
    for key, tensor in tensors.items():
        is_named = key.removesuffix(WEIGHT) in description.types
        # It would be loaded as a float layer, whose output would be noise.
        if tensor.dtype == "I8" and key.endswith(WEIGHT) and not is_named:
            raise InvalidCheckpointError(
                f"{NAME} has no {printable(key)}, which is int8; valid: {valid()}"
            )
    _check_together(description, tensors)
    return description


def _check_together(description: Description, tensors: Mapping[str, Tensor]) -> None:
    """Check that fused layers, and a layer's experts, have the same type."""
    heads = {name.rpartition(".")[0] for name in description.types}
    for head in sorted(heads):
        for parts in PACKED.values():
            there = [part for part in parts if f"{head}.{part}{WEIGHT}" in tensors]
            if len(there) > 1:
                description.type_of(f"{head}.{there[0]}", there)
    for layer in sorted({match[1] for match in map(EXPERT.match, description.types) if match}):
        description.type_of_experts(layer)


def _check_layer(name: str, kind: str, weight: Tensor, tensors: Mapping[str, Tensor]) -> None:
    if weight.dtype != "I8" or len(weight.shape) != 2:
        raise InvalidCheckpointError(
            f"{printable(name + WEIGHT)} is {weight.dtype} {list(weight.shape)}, but {kind} in "
            f"{NAME}; valid: int8 of two dimensions"
        )
    for suffix, (dtypes, count) in PARTS[kind].items():
        tensor, wanted = tensors.get(name + suffix), count or weight.shape[0]
        if tensor is None:
            raise InvalidCheckpointError(
                f"no file has {printable(name + suffix)}, which {kind} by {NAME} needs"
            )
        size = 1
        for length in tensor.shape:
            size *= length
        if tensor.dtype not in dtypes or size != wanted:
            raise InvalidCheckpointError(
                f"{printable(name + suffix)} is {tensor.dtype} {list(tensor.shape)}; valid: "
                f"{' or '.join(dtypes)}, {wanted} in all"
            )


def valid() -> str:
    """Return the valid types of a weight, for messages."""
    return ", ".join(map(repr, TYPES))
