"""Register vLLM's C++ RMS norm kernels on the CPU.

vLLM builds them for the CPU but does not offer them there (vllm/kernels/vllm_c.py): in eager mode
it runs the norm as six PyTorch operators, which takes several times as long for the few rows of a
decode step. Our platform imports this module when vLLM asks it for kernels.
"""

from __future__ import annotations

import torch
from vllm import ir
from vllm.platforms.cpu import CpuPlatform

CpuPlatform.import_kernels()
PROVIDER = "vllm_cpu_c"
# A vLLM that was built for another kind of CPU may lack them.
IS_BUILT = all(hasattr(torch.ops._C, name) for name in ("rms_norm", "fused_add_rms_norm"))
# Elements that the kernels process at a time (csrc/cpu/layernorm.cpp).
WIDTH = 8


def is_fit(
    x: torch.Tensor,  # [..., hidden_size]
    weight: torch.Tensor | None,  # [hidden_size]
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    """Tell whether the kernel supports these arguments; it needs contiguous tensors."""
    return (
        variance_size is None
        and weight is not None
        and weight.dtype == x.dtype
        and x.is_contiguous()
        and x.shape[-1] % WIDTH == 0
    )


def is_fit_to_add(
    x: torch.Tensor,  # [..., hidden_size]
    x_residual: torch.Tensor,  # [..., hidden_size]
    weight: torch.Tensor | None,  # [hidden_size]
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    """Tell whether the kernel that first adds a residual supports these arguments."""
    is_alike = x_residual.dtype == x.dtype and x_residual.is_contiguous()
    return is_alike and is_fit(x, weight, epsilon, variance_size)


@ir.ops.rms_norm.register_impl(PROVIDER, supported=IS_BUILT, supports_args=is_fit)
def rms_norm(
    x: torch.Tensor,  # [..., hidden_size]
    weight: torch.Tensor | None,  # [hidden_size]
    epsilon: float,
    variance_size: int | None = None,
) -> torch.Tensor:
    """Return ``x`` divided by its root mean square, times ``weight``."""
    output = torch.empty_like(x)
    torch.ops._C.rms_norm(output, x, weight, epsilon)
    return output


@ir.ops.fused_add_rms_norm.register_impl(PROVIDER, supported=IS_BUILT, supports_args=is_fit_to_add)
def fused_add_rms_norm(
    x: torch.Tensor,  # [..., hidden_size]
    x_residual: torch.Tensor,  # [..., hidden_size]
    weight: torch.Tensor | None,  # [hidden_size]
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm of ``x + x_residual``, and that sum.

    The kernel overwrites its arguments, so it gets copies: models return the residual of their
    first layer as a hidden state (EAGLE-3, ``extract_hidden_states``).
    """
    output, residual = x.clone(), x_residual.clone()
    torch.ops._C.fused_add_rms_norm(output, residual, weight, epsilon)
    return output, residual
