"""Activation functions, computed in float32 and rounded once (torch_npu's docstrings)."""

import torch

from npu_sim.references.checks import FLOATS, require, require_dtype
from npu_sim.references.registry import reference


@reference("npu::npu_swiglu")
def swiglu(
    input: torch.Tensor,  # 1 to 8 dimensions, of even size along dim
    dim: int = -1,
) -> torch.Tensor:
    """Split the input in two along `dim` and give `a * sigmoid(a) * b`."""
    require_dtype("input", input, FLOATS)
    require(1 <= input.dim() <= 8, f"input has {input.dim()} dimensions; valid: 1 to 8")
    require(input.shape[dim] % 2 == 0, f"size {input.shape[dim]} along dim {dim} is odd")
    gate, up = input.float().chunk(2, dim)
    return (torch.nn.functional.silu(gate) * up).to(input.dtype)


def bounded_swiglu(
    gate: torch.Tensor,  # float32
    up: torch.Tensor,  # gate's shape, float32
    limit: float = 0.0,
    alpha: float = 1.0,
    bias: float = 0.0,
) -> torch.Tensor:
    """Give `gate * sigmoid(alpha * gate) * (up + bias)`.

    A positive `limit` first bounds gate from above, and up from both sides.
    """
    if limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + bias)


@reference("npu::npu_fast_gelu")
def fast_gelu(input: torch.Tensor) -> torch.Tensor:  # up to 8 dimensions
    """Give `x / (1 + exp(-1.702 x))`, the formula documented for A2 and A3."""
    require_dtype("input", input, FLOATS)
    require(input.dim() <= 8, f"input has {input.dim()} dimensions; valid: up to 8")
    x = input.float()
    return (x * torch.sigmoid(1.702 * x)).to(input.dtype)
