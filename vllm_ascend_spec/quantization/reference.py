"""The arithmetic of W8A8, step by step: int8 times int8 to int32, then back to float.

Fast kernels are compared with it, and checkpoints are made with it. Formulas are ModelSlim's
and vllm-ascend's (vllm_ascend/quantization/methods/w8a8/w8a8_static.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

INT8 = torch.iinfo(torch.int8)
SMALLEST = 1e-10


@dataclass(frozen=True)
class StaticWeights:
    """Parameters of a layer of type ``W8A8``.

    Attributes:
        weight: int8, [outputs, inputs].
        input_scale: float32, [1], scale of the activations.
        input_offset: float32, [1], offset of the activations, a whole number.
        deq_scale: float32, [outputs], factors from int32 sums to outputs.
        quant_bias: int32, [outputs], what the offset and the bias add to the sums.
    """

    weight: torch.Tensor
    input_scale: torch.Tensor
    input_offset: torch.Tensor
    deq_scale: torch.Tensor
    quant_bias: torch.Tensor


def quantize_weight(
    weight: torch.Tensor,  # [outputs, inputs]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize a weight symmetrically, with one scale per output.

    Returns:
        int8 [outputs, inputs], and the scales, float32 [outputs, 1].
    """
    weight = weight.float()
    scale = (weight.abs().amax(dim=1, keepdim=True) / INT8.max).clamp(min=SMALLEST)
    return _to_int8(weight / scale), scale


def input_range(lowest: float, highest: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale and offset of activations in a range, which is extended to include zero.

    Returns:
        float32 [1] each; the offset is a whole number.
    """
    low, high = min(lowest, 0.0), max(highest, 0.0)
    scale = max((high - low) / (INT8.max - INT8.min), SMALLEST)
    offset = round(-low / scale) + INT8.min
    scale_and_offset = torch.tensor([[scale], [offset]], dtype=torch.float32)
    return scale_and_offset[0], scale_and_offset[1]


def quantize_static(
    weight: torch.Tensor,  # [outputs, inputs]
    bias: torch.Tensor | None,  # [outputs]
    input_scale: torch.Tensor,  # [1]
    input_offset: torch.Tensor,  # [1]
) -> StaticWeights:
    """Quantize a layer with one static range for all activations."""
    quantized, weight_scale = quantize_weight(weight)
    deq_scale = input_scale * weight_scale.flatten()
    sums = quantized.sum(dim=1, dtype=torch.int64).double()
    whole = -input_offset.double() * sums
    if bias is not None:
        whole = whole + bias.double() / deq_scale.double()
    quant_bias = torch.round(whole).to(torch.int32)
    return StaticWeights(quantized, input_scale, input_offset, deq_scale, quant_bias)


def static_linear(
    x: torch.Tensor,  # [rows, inputs]
    layer: StaticWeights,
) -> torch.Tensor:
    """Return the outputs of a layer of type ``W8A8``, of the inputs' dtype, [rows, outputs]."""
    quantized = _to_int8(x.float() * (1 / layer.input_scale) + layer.input_offset)
    sums = int32_matmul(quantized, layer.weight) + layer.quant_bias
    return (sums.float() * layer.deq_scale).to(x.dtype)


def dynamic_linear(
    x: torch.Tensor,  # [rows, inputs]
    weight: torch.Tensor,  # int8 [outputs, inputs]
    weight_scale: torch.Tensor,  # [outputs, 1]
    bias: torch.Tensor | None,  # [outputs]
) -> torch.Tensor:
    """Return the outputs of a layer of type ``W8A8_DYNAMIC``, of the inputs' dtype."""
    scale = x.float().abs().amax(dim=1, keepdim=True) / INT8.max
    quantized = _to_int8(x.float() / scale.clamp(min=SMALLEST))
    found = int32_matmul(quantized, weight).float() * weight_scale.float().flatten() * scale
    return (found if bias is None else found + bias.float()).to(x.dtype)


def int32_matmul(
    x: torch.Tensor,  # int8 [rows, inputs]
    weight: torch.Tensor,  # int8 [outputs, inputs]
) -> torch.Tensor:
    """Return the exact sums, int32 [rows, outputs]."""
    return x.to(torch.int32) @ weight.to(torch.int32).t()


def _to_int8(values: torch.Tensor) -> torch.Tensor:
    return torch.round(values).clamp(INT8.min, INT8.max).to(torch.int8)


def decode_scale(
    scale: torch.Tensor,  # any shape
) -> torch.Tensor:
    """Return dequantization scales as float32; float16 models store its bits in an int64."""
    if scale.dtype != torch.int64:
        return scale.float()
    return scale.to(torch.int32).view(torch.float32)
