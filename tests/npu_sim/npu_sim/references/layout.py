"""Private memory layouts, which the simulator does not have.

A real NPU may keep a weight in FRACTAL_NZ (29), tiles of 16 x 16. Only speed depends on it, and
PyTorch shows the logical shape, so here a cast copies and every tensor reads as ND (2).
"""

import torch

from npu_sim.references.checks import refuse, require_choice
from npu_sim.references.registry import reference

ND = 2
FRACTAL_NZ = 29


@reference("npu::npu_format_cast")
def format_cast(
    input: torch.Tensor,
    acl_format: int,
    *,
    customize_dtype: int | None = None,
    input_dtype: int | None = None,
) -> torch.Tensor:
    """Give a tensor in another layout; without a change of layout, the input itself."""
    require_choice("acl_format", acl_format, (ND, FRACTAL_NZ))
    refuse(customize_dtype=customize_dtype, input_dtype=input_dtype)
    return input if acl_format == ND else input.clone(memory_format=torch.contiguous_format)


@reference("npu::npu_format_cast.Tensor")
def format_cast_like(
    input: torch.Tensor,
    dst: torch.Tensor,
    *,
    customize_dtype: int | None = None,
    input_dtype: int | None = None,
) -> torch.Tensor:
    """Give the input in the layout of `dst`, which is ND here."""
    refuse(customize_dtype=customize_dtype, input_dtype=input_dtype)
    return input


@reference("npu::get_npu_format", host_only=True)
def get_npu_format(input: torch.Tensor) -> int:
    """Give the layout's number: always ND."""
    return ND
