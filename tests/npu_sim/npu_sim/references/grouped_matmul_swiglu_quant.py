"""The first half of experts in W8A8: product by group, SwiGLU, and quantisation of each row.

Documented in csrc/gmm/grouped_matmul_swiglu_quant/README.md of vllm-ascend's source; its kernel
there says what `swiglu_limit` does. Honoured: int8 weights as one tensor. As documented, bias and
offset have no effect yet, so they are refused. What is documented as undefined is 0 here.
"""

import torch

from npu_sim.references.activation import bounded_swiglu
from npu_sim.references.checks import FLOATS, refuse, require, require_dtype, require_shape
from npu_sim.references.grouped_matmul import grouped_matmul
from npu_sim.references.quant import quantize_rows
from npu_sim.references.registry import reference

MAX_COLUMNS = 10240
MAX_HIDDEN = 65535

# The rows in int8, their scales, and an offset that symmetric quantisation does not have.
Quantised = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _meta(x: torch.Tensor, weight: torch.Tensor, *_: object, **__: object) -> Quantised:
    rows, columns = x.shape[0], weight.shape[2] // 2
    return (
        x.new_empty((rows, columns), dtype=torch.int8),
        x.new_empty(rows, dtype=torch.float32),
        x.new_empty((), dtype=torch.float32),
    )


@reference("_C_ascend::grouped_matmul_swiglu_quant", meta=_meta)
@reference("_C_ascend::grouped_matmul_swiglu_quant_weight_nz", meta=_meta)
def grouped_matmul_swiglu_quant(
    x: torch.Tensor,  # [rows, k], int8
    weight: torch.Tensor,  # [groups, k, n], int8; gate's columns first, then up's
    weight_scale: torch.Tensor,  # [groups, n], float
    x_scale: torch.Tensor,  # [rows], float32
    group_list: torch.Tensor,  # [groups], int64: where each group of rows ends
    *,
    bias: torch.Tensor | None = None,
    offset: torch.Tensor | None = None,
    swiglu_limit: float = 0.0,
) -> Quantised:
    """Give `silu(gate) * up` of each row as int8, the rows' scales (float32), and one 0.

    `gate, up = x_g @ weight_g * weight_scale_g * x_scale` for the rows of each group g. A positive
    `swiglu_limit` bounds gate from above, and up from both sides. The real op leaves rows of no
    group and the last result as they were allocated; here they are 0.
    """
    refuse(bias=bias, offset=offset)
    require_dtype("x", x, (torch.int8,))
    require_dtype("weight", weight, (torch.int8,))
    require_dtype("weight_scale", weight_scale, FLOATS)
    require_dtype("x_scale", x_scale, (torch.float32,))
    require(weight.dim() == 3, f"weight has {weight.dim()} dimensions; valid: 3")
    groups, k, n = weight.shape
    require(n % 2 == 0, f"weight has {n} columns; valid: even numbers")
    require(n <= MAX_COLUMNS, f"weight has {n} columns; valid: up to {MAX_COLUMNS}")
    require(k <= MAX_HIDDEN, f"x has {k} columns; valid: up to {MAX_HIDDEN}")
    require_shape("x", x, None, k)
    require_shape("weight_scale", weight_scale, groups, n)
    require_shape("x_scale", x_scale, x.shape[0])
    [scaled] = grouped_matmul(
        [x],
        [weight],
        scale=[weight_scale],
        per_token_scale=[x_scale],
        group_list=group_list,
        group_list_type=0,
        group_type=0,
        split_item=2,
        output_dtype=torch.float32,
    )
    quantised, scale = quantize_rows(bounded_swiglu(*scaled.chunk(2, -1), swiglu_limit))
    return quantised, scale, scale.new_zeros(())
