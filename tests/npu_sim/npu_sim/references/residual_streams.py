"""DeepSeek V4's ops around a layer: residual streams that are mixed, and a choice of experts.

The formulas of the streams (manifold-constrained hyper-connections) are those of vllm-ascend's own
tests on a device (`tests/e2e/nightly/single_node/ops/singlecard_ops/test_npu_hc_pre.py`), with a
float32 product where the device rounds to HF32; the argument checks are those of
`csrc/torch_binding.cpp`. float32 streams are accepted although a real NPU takes bfloat16 only: the
simulator's tests compare tokens, which needs float32.
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
from npu_sim.references.registry import reference

# How many streams the kernel takes, and how many numbers mix them: one for the layer's input and
# one for its output each, and one for each pair.
STREAMS = 4
MIXES = (2 + STREAMS) * STREAMS

Mixed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _pre_meta(x: torch.Tensor, *_: object, **__: object) -> Mixed:
    batch = x.shape[:-2]
    post = torch.empty((*batch, STREAMS), dtype=torch.float32, device=x.device)
    comb = torch.empty((*batch, STREAMS, STREAMS), dtype=torch.float32, device=x.device)
    return x.new_empty((*batch, x.shape[-1])), post, comb


@reference("_C_ascend::npu_hc_pre_v2", meta=_pre_meta)
def hc_pre_v2(
    x: torch.Tensor,  # [..., 4, hidden], one or two dimensions in front
    hc_fn: torch.Tensor,  # [24, 4 * hidden], float32
    hc_scale: torch.Tensor,  # [3], float32: of the input's, output's and pairs' mixes
    hc_base: torch.Tensor,  # [24], float32
    hc_mult: int,
    hc_sinkhorn_iters: int,
    norm_eps: float,
    hc_eps: float,
) -> Mixed:
    """Mix the streams into a layer's input, and say how its output will be mixed into them.

    Returns:
        The input [..., hidden] in x's dtype; how much of the layer's output each stream gets
        [..., 4]; how much of each old stream (rows) each new one (columns) gets [..., 4, 4], where
        rows and columns sum to about 1. The last two are float32.
    """
    require_choice("hc_mult", hc_mult, (STREAMS,))
    require(hc_sinkhorn_iters >= 1, f"hc_sinkhorn_iters is {hc_sinkhorn_iters}; valid: from 1")
    require_dtype("x", x, (torch.bfloat16, torch.float32))
    require(x.dim() in (3, 4), f"x has {x.dim()} dimensions; valid: 3, 4")
    require(x.numel() > 0, "x must not be empty")
    require(x.shape[-2] == STREAMS, f"x has {x.shape[-2]} streams; valid: {STREAMS}")
    for name, tensor in (("hc_fn", hc_fn), ("hc_scale", hc_scale), ("hc_base", hc_base)):
        require_dtype(name, tensor, (torch.float32,))
    require_shape("hc_fn", hc_fn, MIXES, STREAMS * x.shape[-1])
    require_shape("hc_scale", hc_scale, 3)
    require_shape("hc_base", hc_base, MIXES)
    streams = x.float()
    flat = streams.flatten(-2)
    mixes = flat @ hc_fn.T * torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    scale = hc_scale.repeat_interleave(torch.tensor([STREAMS, STREAMS, STREAMS**2]).to(x.device))
    before, after, pairs = (mixes * scale + hc_base).split((STREAMS, STREAMS, STREAMS**2), -1)
    share = (before.sigmoid() + hc_eps).unsqueeze(-1)
    comb = _balanced(pairs.unflatten(-1, (STREAMS, STREAMS)), hc_sinkhorn_iters, hc_eps)
    return (share * streams).sum(-2).to(x.dtype), 2 * after.sigmoid(), comb


def _balanced(
    logits: torch.Tensor,  # [..., 4, 4], float32
    times: int,
    eps: float,
) -> torch.Tensor:
    """Give positive numbers whose rows and columns sum to about 1 (Sinkhorn and Knopp)."""
    comb = logits.softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(times - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


def _post_meta(x: torch.Tensor, residual: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(residual)


@reference("_C_ascend::npu_hc_post", meta=_post_meta)
def hc_post(
    x: torch.Tensor,  # [batch, tokens, hidden]
    residual: torch.Tensor,  # [batch, tokens, streams, hidden], x's dtype
    post: torch.Tensor,  # [batch, tokens, streams]
    comb: torch.Tensor,  # [batch, tokens, streams, streams], post's dtype
) -> torch.Tensor:
    """Give the new streams: old ones mixed, and a layer's output added to each; residual's shape.

    Stream j is `sum_i comb[i, j] * residual[i] + post[j] * x`.
    """
    require_dtype("x", x, FLOATS)
    require_dtype("post", post, FLOATS)
    require_same_dtype(x=x, residual=residual)
    require_same_dtype(post=post, comb=comb)
    require(x.numel() > 0, "x must not be empty")
    require_shape("x", x, None, None, None)
    batch, tokens, hidden = x.shape
    require_shape("residual", residual, batch, tokens, None, hidden)
    streams = residual.shape[2]
    require_shape("post", post, batch, tokens, streams)
    require_shape("comb", comb, batch, tokens, streams, streams)
    mixed = comb.float().transpose(-1, -2) @ residual.float()
    return (mixed + post.float().unsqueeze(-1) * x.float().unsqueeze(-2)).to(x.dtype)


def _gate_meta(x: torch.Tensor, k: int, *_: object, **__: object) -> Mixed:
    chosen = x.new_empty((x.shape[0], k))
    norm = torch.empty_like(x, dtype=torch.float32)
    return chosen, torch.empty_like(chosen, dtype=torch.int32), norm


@reference("_C_ascend::moe_gating_top_k_hash", meta=_gate_meta)
def gating_top_k_hash(  # noqa: PLR0917 - the schema
    x: torch.Tensor,  # [tokens, experts]
    k: int,
    bias: torch.Tensor | None = None,  # [experts], x's dtype
    input_ids: torch.Tensor | None = None,  # [tokens], int32 or int64
    tid2eid: torch.Tensor | None = None,  # [vocabulary, k], int32 or int64
    k_group: int = 1,
    group_count: int = 1,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    bias_vl: torch.Tensor | None = None,
    image_sentinel_lo: int = 129257,
    image_sentinel_count: int = 5,
) -> Mixed:
    """Give weights and numbers (int32) of k experts per token.

    Experts are those with the largest score plus bias, or those that a table names for the token's
    id. A score is sqrt(softplus(x)) (norm_type 2, alone honoured here), a weight the chosen score's
    share, times a factor. Groups of experts and images are refused.

    Returns:
        Weights [tokens, k] in x's dtype, experts [tokens, k], and zeros [tokens, experts] float32.
    """
    refuse(bias_vl=bias_vl, out_flag=out_flag, renorm=renorm)
    require_choice("norm_type", norm_type, (2,))
    require_choice("k_group", k_group, (1,))
    require_choice("group_count", group_count, (1,))
    require_choice("group_select_mode", group_select_mode, (0, 1))
    require_dtype("x", x, FLOATS)
    require_shape("x", x, None, None)
    tokens, experts = x.shape
    require(1 <= k <= experts, f"k is {k}; valid: 1 to {experts}")
    scores = torch.nn.functional.softplus(x.float()).sqrt()
    if tid2eid is None:
        ranked = scores
        if bias is not None:
            require_same_dtype(x=x, bias=bias)
            require_shape("bias", bias, experts)
            ranked = scores + bias.float()
        chosen = ranked.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    else:
        require(input_ids is not None, "tid2eid needs input_ids")
        assert input_ids is not None
        require_shape("tid2eid", tid2eid, None, k)
        require(input_ids.numel() == tokens, f"{input_ids.numel()} input_ids; valid: {tokens}")
        ids = input_ids.reshape(-1).long()
        inside = (ids >= 0) & (ids < tid2eid.shape[0])
        require(bool(inside.all()), f"an id is beyond the {tid2eid.shape[0]} rows of tid2eid")
        chosen = tid2eid[ids].long()
    weights = scores.gather(-1, chosen)
    weights = weights / (weights.sum(-1, keepdim=True) + eps) * routed_scaling_factor
    return weights.to(x.dtype), chosen.to(torch.int32), torch.zeros_like(x, dtype=torch.float32)
