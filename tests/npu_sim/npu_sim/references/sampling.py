"""Filters on logits before sampling (torch_npu's docstring of `npu_top_k_top_p`)."""

import torch

from npu_sim.references.checks import FLOATS, fail, require, require_dtype, require_shape
from npu_sim.references.registry import reference

MAX_TOP_K = 1024


@reference("npu::npu_top_k_top_p")
def top_k_top_p(
    logits: torch.Tensor,  # [rows, vocab_size]
    p: torch.Tensor | None = None,  # [rows], logits' dtype, in [0, 1]
    k: torch.Tensor | None = None,  # [rows], int32, in [1, min(1024, vocab_size)]
) -> torch.Tensor:
    """Give the logits with everything outside top-k, then top-p, at -inf.

    Equal logits at top-k's threshold all stay. Top-p drops, from the least probable on, what sums
    to no more than 1 - p, and always keeps the last of the stable ascending order.
    """
    require_dtype("logits", logits, FLOATS)
    require(logits.dim() == 2, f"logits has {logits.dim()} dimensions; valid: 2")
    if p is None and k is None:
        fail("neither p nor k was given")
    ordered, order = torch.sort(logits, dim=-1, descending=False, stable=True)
    if k is not None:
        ordered = _keep_top_k(ordered, k)
    if p is not None:
        require_dtype("p", p, (logits.dtype,))
        require_shape("p", p, logits.shape[0])
        require(bool(((p >= 0) & (p <= 1)).all()), "p is outside [0, 1]")
        mass = ordered.float().softmax(-1).cumsum(-1)
        drop = mass <= 1 - p.float().unsqueeze(1)
        drop[:, -1:] = False
        ordered = ordered.masked_fill(drop, float("-inf"))
    return torch.empty_like(ordered).scatter_(-1, order, ordered)


def _keep_top_k(
    ordered: torch.Tensor,  # [rows, vocab_size], ascending
    k: torch.Tensor,  # [rows], int32
) -> torch.Tensor:
    vocab_size = ordered.shape[1]
    require_dtype("k", k, (torch.int32,))
    require_shape("k", k, ordered.shape[0])
    limit = min(MAX_TOP_K, vocab_size)
    require(bool(((k >= 1) & (k <= limit)).all()), f"k is outside [1, {limit}]")
    threshold = ordered.gather(1, (vocab_size - k.long()).unsqueeze(1))
    return ordered.masked_fill(ordered < threshold, float("-inf"))
