"""Matrix products that torch_npu has besides aten's."""

import torch

from npu_sim.references.checks import require, require_dtype, require_shape
from npu_sim.references.registry import reference


@reference("atb::_npu_matmul_add_fp32")
def matmul_add_fp32(
    x: torch.Tensor,  # [k, m], float16 or bfloat16
    weight: torch.Tensor,  # [k, n], x's dtype
    C: torch.Tensor,  # noqa: N803 - [m, n], float32
) -> None:
    """Add `x^T @ weight` to C in place; vllm-ascend calls it once to warm ATB up."""
    require_dtype("x", x, (torch.float16, torch.bfloat16))
    require_dtype("weight", weight, (x.dtype,))
    require_dtype("C", C, (torch.float32,))
    require(x.dim() == 2, f"x has {x.dim()} dimensions; valid: 2")
    require_shape("weight", weight, x.shape[0], None)
    require_shape("C", C, x.shape[1], weight.shape[1])
    C.add_(x.float().t() @ weight.float())
