"""Compare the tensors of a checkpoint with those that its architecture has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value, some
from vllm_ascend_spec.checkpoint.safetensors import Tensor

FLOATS = frozenset(
    ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
)
USUAL_FLOATS = ("BF16", "F16", "F32")
# Buffers that vLLM computes itself and skips in a checkpoint (AutoWeightsLoader).
SKIPPED = re.compile(r"rotary_pos_emb\.inv_freq|rotary_emb\.(inv_freq|cos_cached|sin_cached)")
# vLLM reads these fused, too: one tensor with the rows of its parts.
JOINED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
BIAS = ".bias"


@dataclass(frozen=True)
class Shape:
    """The sizes of a tensor, and the entries of ``config.json`` that they follow from."""

    sizes: tuple[int, ...]
    because: str


Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Table:
    """The tensors of an architecture with the sizes of one ``config.json``.

    Attributes:
        name: the architecture, for messages.
        outside: the tensors outside its layers.
        stack: prefix of the names of tensors in layers, e.g. ``model.layers.``.
        layers: number of layers; 0 if all tensors are ``outside``.
        first: number of the first layer.
        count: the entry of ``config.json`` that holds the number of layers.
        layer: returns the tensors of a layer, by the names after ``stack`` and the layer's number.
        optional: tensors that may be missing.
        hints: what to say about an unexpected tensor, by the end of its name.
    """

    name: str
    outside: Shapes
    stack: str
    layers: int
    layer: Callable[[int], Shapes]
    optional: Shapes = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)
    first: int = 0
    count: str = "num_hidden_layers"


def check_tensors(tensors: Mapping[str, Tensor], table: Table, *, quantized: bool) -> None:
    """Raise unless a checkpoint has every tensor of its architecture and no other.

    Args:
        tensors: the tensors that are there.
        table: the tensors that have to be there.
        quantized: whether weights are quantized. Their names, shapes and dtypes are then the
            quantization's own: each weight needs some tensor, and those left in floats need
            their usual shape.

    Raises:
        InvalidCheckpointError: naming the first tensor that is wrong.
    """
    present = {name: tensor for name, tensor in tensors.items() if not SKIPPED.search(name)}
    _check_layers(present, table)
    expected = _joined(_all(table), present)
    for name, shape in expected.items():
        if quantized:
            _check_quantized(name, shape, present)
        else:
            _check_one(name, shape, present, present.get(name))
    optional = {name: shape for name, shape in table.optional.items() if name in present}
    for name, shape in optional.items():
        if not quantized:
            _check_one(name, shape, present, present[name])
    if not quantized:
        _check_extra(present, expected.keys() | optional.keys(), table)


def _all(table: Table) -> dict[str, Shape]:
    shapes = dict(table.outside)
    for number in range(table.first, table.first + table.layers):
        layer = table.layer(number)
        shapes.update({f"{table.stack}{number}.{name}": layer[name] for name in layer})
    return shapes


def layers_of(names: Iterable[str], stack: str) -> set[int]:
    """Return the layer numbers after ``stack`` in names of tensors."""
    pattern = re.compile(re.escape(stack) + r"(\d{1,9})\.")
    return {int(match[1]) for match in map(pattern.match, names) if match}


def _check_layers(present: Mapping[str, Tensor], table: Table) -> None:
    """Raise unless there are as many layers as the config says, before their table is built."""
    found = layers_of(present, table.stack)
    if not found and not table.layers:
        return
    first = table.first
    missed = next(n for n in range(first, first + len(found) + 1) if n not in found)
    if not found:
        has = f"it has {some(sorted(present))}" if present else "it has none of them"
        raise InvalidCheckpointError(
            f"has no tensor {table.stack}{first}.*, as vLLM's {table.name} has; {has}"
        )
    if missed < first + len(found):
        missing = f"no tensor of layer {missed}, but of layer {max(found)}"
        raise InvalidCheckpointError(
            f"has {missing}; {table.count} in config.json is {table.layers}"
        )
    if len(found) != table.layers:
        many = f"{len(found)} layer{'s' if len(found) > 1 else ''}"
        raise InvalidCheckpointError(
            f"has {many} ({table.stack}*), {table.count} in config.json is "
            f"{short_value(table.layers)}"
        )


def _joined(expected: dict[str, Shape], present: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Replace parts with their fused tensor where the checkpoint has them fused."""
    for name in present:
        module, _, kind = name.rpartition(".")
        whole = next((whole for whole in JOINED if module.endswith(f".{whole}")), None)
        if whole is None or name in expected:
            continue
        stem = module.removesuffix(whole)
        kind = kind if kind == "bias" else "weight"  # a quantized weight has another name
        parts = [expected.pop(f"{stem}{part}.{kind}", None) for part in JOINED[whole]]
        known = [part for part in parts if part is not None]
        if known:
            rows = sum(part.sizes[0] for part in known)
            expected[f"{module}.{kind}"] = Shape((rows, *known[0].sizes[1:]), known[0].because)
    return expected


def _check_one(
    name: str, shape: Shape, present: Mapping[str, Tensor], tensor: Tensor | None
) -> None:
    sizes = list(shape.sizes)
    if tensor is None:
        why = f", from {shape.because} in config.json" if name.endswith(BIAS) else ""
        raise InvalidCheckpointError(
            f"has no tensor {printable(name)} {_files(present)}; valid: {short_value(sizes)}{why}"
        )
    where = f"{printable(name)} in {tensor.path.name}"
    if tensor.dtype not in FLOATS:
        raise InvalidCheckpointError(
            f"{where} is {tensor.dtype}; valid: {', '.join(USUAL_FLOATS)}, or a "
            "quantization_config in config.json"
        )
    if list(tensor.shape) != sizes:
        raise InvalidCheckpointError(
            f"{where} is {short_value(list(tensor.shape))}; valid: {short_value(sizes)}, from "
            f"{shape.because} in config.json"
        )


def _check_quantized(name: str, shape: Shape, present: Mapping[str, Tensor]) -> None:
    """Raise unless there is a tensor for a weight; compare weights that are not quantized.

    A bias may be part of another tensor.
    """
    tensor = present.get(name)
    if tensor is not None and tensor.dtype in USUAL_FLOATS:
        _check_one(name, shape, present, tensor)
    module = name.rpartition(".")[0]
    if not name.endswith(BIAS) and not any(other.startswith(f"{module}.") for other in present):
        raise InvalidCheckpointError(f"has no tensor {printable(module)}.* {_files(present)}")


def _check_extra(present: Mapping[str, Tensor], known: Iterable[str], table: Table) -> None:
    known = set(known)
    for name in sorted(present.keys() - known):
        tensor = present[name]
        if f"{name.removesuffix(BIAS)}.weight" in known and _is_zero(tensor):
            continue
        hint = next((text for end, text in table.hints.items() if name.endswith(end)), None)
        if hint is None:
            hint = f"vLLM's {table.name} has none"
            hint += " and would leave it out" if name.endswith(BIAS) else ""
        raise InvalidCheckpointError(
            f"{printable(name)} in {tensor.path.name} is unexpected: {hint}"
        )


def _is_zero(tensor: Tensor) -> bool:
    """Return whether a tensor is all zeros; quantization tools write such biases."""
    with tensor.path.open("rb") as file:
        file.seek(tensor.start)
        return not any(file.read(tensor.end - tensor.start))


def _files(present: Mapping[str, Tensor]) -> str:
    return "in " + some(sorted({tensor.path.name for tensor in present.values()}))
