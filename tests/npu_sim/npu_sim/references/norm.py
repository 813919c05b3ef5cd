"""Root-mean-square norms: `x / sqrt(mean(x^2) + epsilon) * gamma`, over gamma's dimensions.

Documented in torch_npu's own docstrings (`npu_rms_norm`) and, for the ops of `_C_ascend`, by the
operator definitions in vllm-ascend's csrc/moe. Where x is bfloat16 or float16 the sums are taken in
float32.
"""

import torch

from npu_sim.references.checks import FLOATS, require, require_dtype, require_same_dtype
from npu_sim.references.registry import reference


def _check(x: torch.Tensor, gamma: torch.Tensor) -> None:
    require_dtype("x", x, FLOATS)
    require_same_dtype(x=x, gamma=gamma)
    tail = x.shape[x.dim() - gamma.dim() :]
    require(
        1 <= gamma.dim() <= x.dim() and gamma.shape == tail,
        f"gamma has shape {tuple(gamma.shape)}, x ends in {tuple(tail)}",
    )


def _reciprocal_rms(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Give 1/sqrt(mean(x^2) + epsilon), float32 [leading sizes of x, 1 per dimension of gamma]."""
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    return torch.rsqrt(x.float().pow(2).mean(dims, keepdim=True) + epsilon)


def _sizes(x: torch.Tensor, gamma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give empty y and rstd, for tracing."""
    kept = x.shape[: x.dim() - gamma.dim()]
    rstd = x.new_empty((*kept, *[1] * gamma.dim()), dtype=torch.float32)
    return torch.empty_like(x), rstd


@reference("npu::npu_rms_norm")
def rms_norm(
    input: torch.Tensor,  # [..., hidden]
    gamma: torch.Tensor,  # [hidden], input's dtype
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the normed input and the reciprocal root mean square (float32)."""
    _check(input, gamma)
    rstd = _reciprocal_rms(input, gamma, epsilon)
    return (input.float() * rstd * gamma.float()).to(input.dtype), rstd


@reference("npu::npu_add_rms_norm")
def add_rms_norm(
    x1: torch.Tensor,  # [..., hidden]
    x2: torch.Tensor,  # x1's shape and dtype
    gamma: torch.Tensor,  # [hidden]
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give the norm of x1 + x2, the reciprocal root mean square, and x1 + x2."""
    require(x1.shape == x2.shape, f"x1 {tuple(x1.shape)} and x2 {tuple(x2.shape)} differ")
    require_same_dtype(x1=x1, x2=x2)
    total = x1 + x2
    y, rstd = rms_norm(total, gamma, epsilon)
    return y, rstd, total


def _add_rms_norm_bias_meta(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor | None = None,
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return *_sizes(x1, gamma), torch.empty_like(x1)


@reference("_C_ascend::npu_add_rms_norm_bias", meta=_add_rms_norm_bias_meta)
def add_rms_norm_bias(
    x1: torch.Tensor,  # [..., hidden]
    x2: torch.Tensor,  # x1's shape and dtype
    gamma: torch.Tensor,  # [hidden]
    beta: torch.Tensor | None = None,  # [hidden]
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give norm(x1 + x2) * gamma + beta, the reciprocal root mean square, and x1 + x2.

    In bfloat16 the kernel norms the sum before it is rounded, and rounds the normed row before
    gamma; in float16 it norms the rounded sum.
    """
    require(x1.shape == x2.shape, f"x1 {tuple(x1.shape)} and x2 {tuple(x2.shape)} differ")
    require_same_dtype(x1=x1, x2=x2, gamma=gamma, beta=beta)
    _check(x1, gamma)
    require(
        beta is None or beta.shape == gamma.shape,
        f"beta and gamma differ in shape: gamma {tuple(gamma.shape)}",
    )
    total = x1 + x2
    exact = x1.float() + x2.float() if x1.dtype == torch.bfloat16 else total.float()
    rstd = _reciprocal_rms(exact, gamma, epsilon)
    y = (exact * rstd).to(x1.dtype).float() * gamma.float()
    if beta is not None:
        y = y + beta.float()
    return y.to(x1.dtype), rstd, total


@reference("_C_ascend::npu_gemma_rms_norm", meta=lambda x, gamma, epsilon=1e-6: _sizes(x, gamma))
def gemma_rms_norm(
    x: torch.Tensor,  # [..., hidden]
    gamma: torch.Tensor,  # [hidden]
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Norm with a weight of 1 + gamma, as Gemma stores it."""
    _check(x, gamma)
    rstd = _reciprocal_rms(x, gamma, epsilon)
    return (x.float() * rstd * (1.0 + gamma.float())).to(x.dtype), rstd


@reference(
    "_C_ascend::npu_rms_norm_cast",
    meta=lambda x, gamma, epsilon=1e-6: (
        torch.empty_like(x),
        torch.empty_like(x, dtype=torch.float32),
    ),
)
def rms_norm_cast(
    x: torch.Tensor,  # [..., hidden]
    gamma: torch.Tensor,  # [hidden]
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the normed rows in x's dtype, and the same values (rounded) in float32."""
    y, _ = rms_norm(x, gamma, epsilon)
    return y, y.float()
