"""Eight-bit quantisation: W8A8 with dynamic and static scales, and W8A16.

Documented in torch_npu's docstrings (`npu_dynamic_quant`, `npu_quantize`, `npu_quant_matmul`,
`npu_weight_quant_batchmatmul`). Rounding is to the nearest, halves to even. Products of integers
are exact. int4 has no reference.

float32 is accepted for activations and outputs although a real NPU takes float16 and bfloat16 only:
the simulator's tests compare tokens with a CPU's, which needs float32.
"""

import torch

from npu_sim.references.checks import (
    FLOATS,
    refuse,
    require,
    require_choice,
    require_dtype,
    require_same_dtype,
    require_shape,
)
from npu_sim.references.dtypes import dtype_of
from npu_sim.references.norm import add_rms_norm_bias
from npu_sim.references.registry import reference

LARGEST = 127


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise float32 rows by their largest value: int8 values and float32 scales."""
    scale = x.abs().amax(-1) / LARGEST if x.shape[-1] else x.new_zeros(x.shape[:-1])
    divisor = torch.where(scale == 0, torch.ones_like(scale), scale).unsqueeze(-1)
    return torch.round(x / divisor).clamp(-LARGEST - 1, LARGEST).to(torch.int8), scale


@reference("npu::npu_dynamic_quant")
def dynamic_quant(
    input: torch.Tensor,  # [..., hidden], 2 or more dimensions
    *,
    smooth_scales: torch.Tensor | None = None,  # [hidden], or [groups, hidden] with group_index
    group_index: torch.Tensor | None = None,  # [groups], int32: where each group of rows ends
    dst_type: torch.dtype | int | None = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give each row as int8 and its scale, the row's largest value by 127 (float32)."""
    refuse(dst_type_max=dst_type_max)
    require_choice("quant_mode", quant_mode, ("pertoken",))
    require_choice("dst_type", dtype_of("dst_type", dst_type, torch.int8), (torch.int8,))
    require_dtype("input", input, FLOATS)
    require(input.dim() > 1, f"input has {input.dim()} dimensions; valid: 2 or more")
    rows = input.float()
    if smooth_scales is not None:
        require_same_dtype(input=input, smooth_scales=smooth_scales)
        rows = rows * _smoothing(rows, smooth_scales, group_index)
    else:
        refuse(group_index=group_index)
    return quantize_rows(rows)


def _smoothing(
    rows: torch.Tensor,  # [..., hidden]
    smooth_scales: torch.Tensor,
    group_index: torch.Tensor | None,
) -> torch.Tensor:
    """Give what each row is multiplied by."""
    if group_index is None:
        require_shape("smooth_scales", smooth_scales, rows.shape[-1])
        return smooth_scales.float()
    require_dtype("group_index", group_index, (torch.int32,))
    require_shape("smooth_scales", smooth_scales, group_index.shape[0], rows.shape[-1])
    ends = group_index.tolist()
    count = rows.numel() // rows.shape[-1]
    require(
        ends == sorted(ends) and ends[-1] == count,
        f"group_index {ends} does not divide {count} rows",
    )
    sizes = torch.tensor([b - a for a, b in zip([0, *ends], ends, strict=False)])
    chosen = smooth_scales.float().repeat_interleave(sizes.to(smooth_scales.device), 0)
    return chosen.reshape(rows.shape)


@reference("npu::npu_quantize")
def quantize(
    input: torch.Tensor,
    scales: torch.Tensor,  # [1] or [input's size along axis]
    zero_points: torch.Tensor | None,  # scales' shape
    dtype: torch.dtype | int,
    axis: int = 1,
    div_mode: bool = True,
) -> torch.Tensor:
    """Give `round(input / scales + zero_points)` as int8, or with `input * scales`."""
    target = dtype_of("dtype", dtype, torch.qint8)
    require_choice("dtype", target, (torch.qint8, torch.int8))
    require_dtype("input", input, FLOATS)
    require_dtype("scales", scales, FLOATS)
    if not div_mode:
        axis = -2 if axis == -2 else -1  # as documented: all but -2 stand for the last

    def along_axis(name: str, factor: torch.Tensor) -> torch.Tensor:
        require(
            factor.dim() == 1 and factor.shape[0] in (1, input.shape[axis]),
            f"{name} has shape {tuple(factor.shape)}; valid: (1) or ({input.shape[axis]})",
        )
        shape = [1] * input.dim()
        shape[axis] = factor.shape[0]
        return factor.float().reshape(shape)

    scale = along_axis("scales", scales)
    result = input.float() / scale if div_mode else input.float() * scale
    if zero_points is not None:
        offset = along_axis("zero_points", zero_points)
        result = torch.round(result) + offset if div_mode else result + offset
    return torch.round(result).clamp(-LARGEST - 1, LARGEST).to(torch.int8)


@reference("npu::npu_add_rms_norm_quant")
def add_rms_norm_quant(
    x1: torch.Tensor,  # [..., hidden]
    x2: torch.Tensor,  # x1's shape and dtype
    gamma: torch.Tensor,  # [hidden]
    scales1: torch.Tensor,  # [hidden]
    zero_points1: torch.Tensor | None,  # [hidden]
    beta: torch.Tensor | None = None,  # [hidden]
    scales2: torch.Tensor | None = None,
    zero_points2: torch.Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-6,
    div_mode: bool = True,
    dst_type: torch.dtype | int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give norm(x1 + x2) as int8, a second one that is empty here, and x1 + x2."""
    refuse(scales2=scales2, zero_points2=zero_points2)
    require_choice("axis", axis, (-1,))
    require_choice("dst_type", dtype_of("dst_type", dst_type, torch.int8), (torch.int8,))
    require_shape("scales1", scales1, *gamma.shape)
    y, _, total = add_rms_norm_bias(x1, x2, gamma, beta, epsilon)
    quantized = quantize(y, scales1, zero_points1, torch.int8, -1, div_mode)
    return quantized, torch.empty_like(quantized), total


@reference("npu::npu_add_rms_norm_dynamic_quant")
def add_rms_norm_dynamic_quant(
    x1: torch.Tensor,  # [..., hidden]
    x2: torch.Tensor,  # x1's shape and dtype
    gamma: torch.Tensor,  # [hidden]
    *,
    smooth_scale1: torch.Tensor | None = None,  # [hidden]
    smooth_scale2: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,  # [hidden]
    epsilon: float = 1e-6,
    output_mask: list[bool] | None = None,
    y_dtype: torch.dtype | int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give norm(x1 + x2) as int8, an empty one, x1 + x2, the rows' scales, and an empty one.

    A second quantisation, with smooth_scale2 or by the mask, has no reference.
    """
    mask = list(output_mask) if output_mask else [True, False]
    refuse(smooth_scale2=smooth_scale2)
    require_choice("output_mask", mask, ([True, False],))
    require_choice("y_dtype", dtype_of("y_dtype", y_dtype, torch.int8), (torch.int8,))
    y, _, total = add_rms_norm_bias(x1, x2, gamma, beta, epsilon)
    quantized, scale = dynamic_quant(y, smooth_scales=smooth_scale1)
    return quantized, quantized.new_empty(1), total, scale, scale.new_empty(1)


def _plain_scale(scale: torch.Tensor) -> torch.Tensor:
    """Give a scale as float32; int64 keeps a float32 in its lower half."""
    if scale.dtype == torch.int64:
        return (scale & 0xFFFFFFFF).to(torch.int32).view(torch.float32)
    return scale.float()


@reference("npu::npu_quant_matmul")
def quant_matmul(
    x1: torch.Tensor,  # [..., m, k], int8
    x2: torch.Tensor,  # [..., k, n], int8
    scale: torch.Tensor,  # [1] or [n]; float32, bfloat16, or int64 that holds a float32
    *,
    offset: torch.Tensor | None = None,  # [1] or [n], float32, for an int8 output
    pertoken_scale: torch.Tensor | None = None,  # [m], float32
    bias: torch.Tensor | None = None,  # [n]: int32 before scaling, float after it
    output_dtype: torch.dtype | int | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None,
    scale_dtype: int | None = None,
    group_sizes: list[int] | None = None,
    y_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Give `(x1 @ x2 + bias) * scale * pertoken_scale` in output_dtype, int8 by default."""
    refuse(
        x1_dtype=x1_dtype,
        x2_dtype=x2_dtype,
        pertoken_scale_dtype=pertoken_scale_dtype,
        scale_dtype=scale_dtype,
        group_sizes=group_sizes,
        y_scale=y_scale,
    )
    target = dtype_of("output_dtype", output_dtype, torch.int8)
    require_choice("output_dtype", target, (*FLOATS, torch.int8, torch.int32))
    for name, matrix in (("x1", x1), ("x2", x2)):
        require_dtype(name, matrix, (torch.int8,))
        require(2 <= matrix.dim() <= 6, f"{name} has {matrix.dim()} dimensions; valid: 2 to 6")
    require(x1.shape[-1] == x2.shape[-2], f"x1 {tuple(x1.shape)} does not fit x2 {tuple(x2.shape)}")
    require_dtype("scale", scale, (torch.float32, torch.bfloat16, torch.int64))
    _check_vectors(x2.shape[-1], scale=scale, offset=offset)
    result = torch.matmul(x1.double(), x2.double())
    if bias is not None:
        require_shape("bias", bias, x2.shape[-1])
        require_dtype("bias", bias, (torch.int32, *FLOATS))
        result = result + bias.double() if bias.dtype == torch.int32 else result
    if target == torch.int32:
        refuse(pertoken_scale=pertoken_scale, offset=offset)
        return result.to(torch.int32)
    result = result.float() * _plain_scale(scale)
    if pertoken_scale is not None:
        require_dtype("pertoken_scale", pertoken_scale, (torch.float32,))
        require_shape("pertoken_scale", pertoken_scale, x1.shape[-2])
        result = result * pertoken_scale.unsqueeze(-1)
    if bias is not None and bias.dtype != torch.int32:
        result = result + bias.float()
    if target == torch.int8:
        result = result if offset is None else result + offset
        return torch.round(result).clamp(-LARGEST - 1, LARGEST).to(torch.int8)
    refuse(offset=offset)
    return result.to(target)


def _check_vectors(columns: int, **vectors: torch.Tensor | None) -> None:
    for name, vector in vectors.items():
        if vector is not None:
            require(
                vector.dim() == 1 and vector.shape[0] in (1, columns),
                f"{name} has shape {tuple(vector.shape)}; valid: (1) or ({columns})",
            )


@reference("npu::npu_weight_quant_batchmatmul")
def weight_quant_batchmatmul(  # noqa: PLR0917 - the schema
    x: torch.Tensor,  # [m, k]
    weight: torch.Tensor,  # [k, n], int8
    antiquant_scale: torch.Tensor,  # [1], [n], [1, n] or [groups, n], x's dtype
    antiquant_offset: torch.Tensor | None = None,  # antiquant_scale's shape and dtype
    quant_scale: torch.Tensor | None = None,
    quant_offset: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,  # [n] or [1, n]
    antiquant_group_size: int = 0,
    inner_precise: int = 0,
    weight_dtype: int | None = None,
) -> torch.Tensor:
    """Give `x @ ((weight + antiquant_offset) * antiquant_scale) + bias` in x's dtype."""
    refuse(quant_scale=quant_scale, quant_offset=quant_offset, weight_dtype=weight_dtype)
    require(inner_precise in (0, 1), f"inner_precise is {inner_precise}; valid: 0, 1")
    require_dtype("x", x, FLOATS)
    require_dtype("weight", weight, (torch.int8,))
    require_same_dtype(x=x, antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset)
    require(x.dim() == 2, f"x has {x.dim()} dimensions; valid: 2")
    require_shape("weight", weight, x.shape[1], None)
    k, n = weight.shape
    group = antiquant_group_size
    require(
        group == 0 or (32 <= group < k and group % 32 == 0),
        f"antiquant_group_size is {group}; valid: 0 or multiples of 32 below {k}",
    )

    def per_weight(name: str, factor: torch.Tensor) -> torch.Tensor:
        groups = -(-k // group) if group else 1
        fits = factor.shape in ((groups, n), (n,), (1,), (1, 1)) and (
            factor.dim() == 2 or not group
        )
        require(fits, f"{name} has shape {tuple(factor.shape)}; valid: ({groups}, {n})")
        wide = factor.float()
        return wide.repeat_interleave(group, 0)[:k] if group else wide

    full = weight.float()
    if antiquant_offset is not None:
        full = full + per_weight("antiquant_offset", antiquant_offset)
    result = x.float() @ (full * per_weight("antiquant_scale", antiquant_scale))
    if bias is not None:
        require(bias.shape in ((n,), (1, n)), f"bias has shape {tuple(bias.shape)}; valid: ({n})")
        result = result + bias.float()
    return result.to(x.dtype)
