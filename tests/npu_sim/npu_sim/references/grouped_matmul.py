"""Products of groups of rows with a weight each, as the experts of a mixture need them.

Documented in torch_npu's docstring of `npu_grouped_matmul`. Honoured: one x, weights as one tensor
or a list, groups along the rows (group_type 0), one result (split_item 2 or 3), float and W8A8.
"""

import torch

from npu_sim.references.checks import (
    FLOATS,
    fail,
    refuse,
    require,
    require_choice,
    require_dtype,
    require_shape,
)
from npu_sim.references.dtypes import dtype_of
from npu_sim.references.registry import reference

Tensors = list[torch.Tensor]


def _per_group(name: str, tensors: Tensors | None, groups: int, dims: int) -> Tensors | None:
    """Give one tensor per group, each of `dims` dimensions, out of one tensor or a list."""
    if not tensors:
        return None
    if len(tensors) == 1 and tensors[0].dim() == dims + 1:
        tensors = list(tensors[0].unbind(0))
    require(len(tensors) == groups, f"{name} is for {len(tensors)} groups, group_list for {groups}")
    for tensor in tensors:
        require(tensor.dim() == dims, f"{name} has {tensor.dim()} dimensions per group, not {dims}")
    return list(tensors)


@reference("npu::npu_grouped_matmul")
def grouped_matmul(
    x: Tensors,  # one [rows, k]
    weight: Tensors,  # one [groups, k, n], or [k, n] per group
    *,
    bias: Tensors | None = None,  # one [groups, n], or [n] per group
    scale: Tensors | None = None,  # one [groups, n], or [n] per group; for int8
    offset: Tensors | None = None,
    antiquant_scale: Tensors | None = None,
    antiquant_offset: Tensors | None = None,
    per_token_scale: Tensors | None = None,  # one [rows], float32; for int8
    group_list: torch.Tensor | None = None,  # [groups], int64
    activation_input: Tensors | None = None,
    activation_quant_scale: Tensors | None = None,
    activation_quant_offset: Tensors | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    act_type: int | None = 0,
    tuning_config: list[int] | None = None,  # hints for speed, without effect here
    output_dtype: torch.dtype | int | None = None,
    x_dtype: int | None = None,
    weight_dtype: int | None = None,
    scale_dtype: int | None = None,
    per_token_scale_dtype: int | None = None,
) -> Tensors:
    """Give `x_g @ weight_g + bias_g` for the rows of each group g, one below the other.

    `group_list` says where groups end (group_list_type 0) or how many rows they have (1). Rows of
    no group are 0. int8 rows are multiplied exactly, then by scale and per_token_scale.
    """
    refuse(
        offset=offset,
        antiquant_scale=antiquant_scale,
        antiquant_offset=antiquant_offset,
        activation_input=activation_input,
        activation_quant_scale=activation_quant_scale,
        activation_quant_offset=activation_quant_offset,
        act_type=act_type,
        x_dtype=x_dtype,
        weight_dtype=weight_dtype,
        scale_dtype=scale_dtype,
        per_token_scale_dtype=per_token_scale_dtype,
    )
    require_choice("split_item", split_item, (2, 3))
    require_choice("group_type", group_type, (0,))
    require(len(x) == 1, f"{len(x)} tensors in x; the simulator has a reference for 1")
    if group_list is None:
        fail("group_list was not given")
    assert group_list is not None
    rows, sizes = x[0], _sizes(group_list, group_list_type, x[0].shape[0])
    require(rows.dim() == 2, f"x has {rows.dim()} dimensions; valid: 2")
    groups = len(sizes)
    weights = _per_group("weight", weight, groups, 2) or []
    require(bool(weights), "weight is empty")
    biases, scales = _per_group("bias", bias, groups, 1), _per_group("scale", scale, groups, 1)
    quantised = rows.dtype == torch.int8
    if quantised:
        require_dtype("weight", weights[0], (torch.int8,))
        target = dtype_of("output_dtype", output_dtype, torch.int8)
        require_choice("output_dtype", target, (*FLOATS, torch.int32))
        require((scales is None) == (target == torch.int32), "scale does not fit output_dtype")
    else:
        refuse(scale=scale, per_token_scale=per_token_scale)
        require_dtype("x", rows, FLOATS)
        require_dtype("weight", weights[0], (rows.dtype,))
        target = dtype_of("output_dtype", output_dtype, rows.dtype)
    wide = torch.float64 if quantised else torch.float32
    out = torch.zeros((rows.shape[0], weights[0].shape[-1]), dtype=wide, device=rows.device)
    first = 0
    for g, size in enumerate(sizes):
        require_shape("weight", weights[g], rows.shape[1], out.shape[1])
        part = rows[first : first + size].to(wide) @ weights[g].to(wide)
        part = part if biases is None else part + biases[g].to(wide)
        out[first : first + size] = part if scales is None else part * scales[g].to(wide)
        first += size
    if per_token_scale:
        require_dtype("per_token_scale", per_token_scale[0], (torch.float32,))
        require_shape("per_token_scale", per_token_scale[0], rows.shape[0])
        out = out * per_token_scale[0].unsqueeze(-1)
    return [out.to(target)]


def _sizes(group_list: torch.Tensor, kind: int | None, rows: int) -> list[int]:
    """Give the number of rows per group."""
    require_dtype("group_list", group_list, (torch.int64,))
    require(group_list.dim() == 1, f"group_list has {group_list.dim()} dimensions; valid: 1")
    require_choice("group_list_type", kind, (0, 1))
    sizes = group_list.tolist()
    if kind == 0:
        sizes = [b - a for a, b in zip([0, *sizes], sizes, strict=False)]
    require(
        all(size >= 0 for size in sizes) and sum(sizes) <= rows,
        f"group_list gives groups of {sizes} out of {rows} rows",
    )
    return sizes
