"""What shared experts in W8A8 do between their two products: scaling, SwiGLU, and quantisation.

Documented in vllm-ascend's source (csrc/moe/dequant_swiglu_quant/op_host/*_proto.h). That calls
`swiglu_mode` 1 one of odd and even columns, but the op's kernel there takes halves, as mode 0 does,
and so does vllm-ascend's test of it. Honoured: int32 products, dynamic scales, and one group.
"""

import torch

from npu_sim.references.activation import bounded_swiglu
from npu_sim.references.checks import refuse, require, require_choice, require_dtype, require_shape
from npu_sim.references.quant import quantize_rows
from npu_sim.references.registry import reference

# Columns of x in mode 1: a block of 32 bytes for each half of the result in int8.
ALIGNMENT = 64


def _meta(x: torch.Tensor, **_: object) -> tuple[torch.Tensor, torch.Tensor]:
    half = x.new_empty((*x.shape[:-1], x.shape[-1] // 2), dtype=torch.int8)
    return half, x.new_empty(x.shape[:-1], dtype=torch.float32)


@reference("_C_ascend::npu_dequant_swiglu_quant", meta=_meta)
def dequant_swiglu_quant(
    x: torch.Tensor,  # [..., n], int32, 2 or more dimensions
    *,
    weight_scale: torch.Tensor | None = None,  # [n] or [1, n], float32
    activation_scale: torch.Tensor | None = None,  # one per row, in any shape; float32
    bias: torch.Tensor | None = None,
    quant_scale: torch.Tensor | None = None,
    quant_offset: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    activate_left: bool = True,
    quant_mode: int = 0,
    swiglu_mode: int = 0,
    clamp_limit: float = 0.0,
    glu_alpha: float = 1.0,
    glu_bias: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give `silu(gate) * up` of each row as int8, and the rows' scales (float32).

    `gate, up = x * weight_scale * activation_scale`, with up first if not `activate_left`. The last
    three arguments take effect in swiglu_mode 1 alone, see `bounded_swiglu`.
    """
    refuse(bias=bias, quant_scale=quant_scale, quant_offset=quant_offset, group_index=group_index)
    require_choice("quant_mode", quant_mode, (1,))
    require_choice("swiglu_mode", swiglu_mode, (0, 1))
    require(clamp_limit >= 0, f"clamp_limit is {clamp_limit}; valid: 0 or more")
    require_dtype("x", x, (torch.int32,))
    require(x.dim() > 1, f"x has {x.dim()} dimensions; valid: 2 or more")
    n = x.shape[-1]
    alignment = ALIGNMENT if swiglu_mode == 1 else 2
    require(n % alignment == 0, f"x has {n} columns; valid: multiples of {alignment}")
    require(weight_scale is not None, "weight_scale was not given")
    assert weight_scale is not None
    require_dtype("weight_scale", weight_scale, (torch.float32,))
    require_shape("weight_scale", weight_scale, *(1,) * (weight_scale.dim() == 2), n)
    scaled = x.float() * weight_scale.reshape(n)
    if activation_scale is not None:
        require_dtype("activation_scale", activation_scale, (torch.float32,))
        rows = x.numel() // n
        count = activation_scale.numel()
        require(count == rows, f"activation_scale has {count} elements; valid: {rows}")
        scaled = scaled * activation_scale.reshape(*x.shape[:-1], 1)
    left, right = scaled.chunk(2, -1)
    gate, up = (left, right) if activate_left else (right, left)
    if swiglu_mode == 0:
        return quantize_rows(bounded_swiglu(gate, up))
    return quantize_rows(bounded_swiglu(gate, up, clamp_limit, glu_alpha, glu_bias))
