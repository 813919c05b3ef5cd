"""Mixtures of experts: choosing experts, sorting tokens by expert, products by expert, and back.

Documented in torch_npu's docstrings (`npu_moe_gating_top_k`, `npu_moe_gating_top_k_softmax`,
`npu_moe_init_routing_v2`, `npu_moe_token_permute`, `npu_moe_token_unpermute`) and under
aclnnMoeTokenPermute in CANN's API reference. What is documented as undefined is 0 here.
"""

import torch

from npu_sim.references.checks import (
    FLOATS,
    INTS,
    refuse,
    require,
    require_choice,
    require_dtype,
    require_same_dtype,
    require_shape,
)
from npu_sim.references.quant import quantize_rows
from npu_sim.references.registry import reference

MAX_EXPERTS = 2048

Routed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _gate(
    x: torch.Tensor,  # [tokens, experts]
    bias: torch.Tensor | None,  # [experts]
    *,
    k: int,
    k_group: int,
    group_count: int,
    by_two_best: bool,
    sigmoid: bool,
    renorm: bool,
    factor: float,
    eps: float,
) -> Routed:
    norm = torch.sigmoid(x.float()) if sigmoid else x.float().softmax(-1)
    score = norm if bias is None else norm + bias.float()
    if group_count > 1:
        grouped = score.unflatten(-1, (group_count, -1))
        worth = grouped.topk(2, -1).values.sum(-1) if by_two_best else grouped.amax(-1)
        best = _top(worth, k_group)
        kept = torch.zeros_like(worth, dtype=torch.bool).scatter_(-1, best, True)
        score = grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(-2)
    experts = _top(score, k)
    weights = norm.gather(-1, experts)
    if renorm:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    return (weights * factor).to(x.dtype), experts.to(torch.int32), norm


def _top(values: torch.Tensor, k: int) -> torch.Tensor:
    """Give the indices of the k largest, the lower index first where values are equal."""
    return torch.sort(values, dim=-1, descending=True, stable=True).indices[..., :k]


def _gate_meta(x: torch.Tensor, k: int, *_: object, **__: object) -> Routed:
    chosen = x.new_empty((x.shape[0], k))
    norm = torch.empty_like(x, dtype=torch.float32)
    return chosen, torch.empty_like(chosen, dtype=torch.int32), norm


def _check_gate(
    x: torch.Tensor,
    bias: torch.Tensor | None,
    k: int,
    k_group: int,
    group_count: int,
) -> None:
    require_dtype("x", x, FLOATS)
    require(x.dim() == 2, f"x has {x.dim()} dimensions; valid: 2")
    experts = x.shape[1]
    require(experts <= MAX_EXPERTS, f"{experts} experts; valid: up to {MAX_EXPERTS}")
    if bias is not None:
        require_same_dtype(x=x, bias=bias)
        require_shape("bias", bias, experts)
    require(
        group_count > 0 and experts % group_count == 0,
        f"group_count is {group_count}; valid: divisors of {experts}",
    )
    size = experts // group_count
    require(group_count == 1 or size > 2, f"groups of {size} experts; valid: more than 2")
    require(1 <= k_group <= group_count, f"k_group is {k_group}; valid: 1 to {group_count}")
    require(1 <= k <= size * k_group, f"k is {k}; valid: 1 to {size * k_group}")


@reference("_C_ascend::moe_gating_top_k", meta=_gate_meta)
def gating_top_k(  # noqa: PLR0917 - the schema
    x: torch.Tensor,  # [tokens, experts]
    k: int,
    k_group: int,
    group_count: int,
    group_select_mode: int,
    renorm: int,
    norm_type: int,
    out_flag: bool,
    routed_scaling_factor: float,
    eps: float,
    bias_opt: torch.Tensor | None = None,  # [experts], x's dtype
) -> Routed:
    """Give weights and numbers (int32) of k experts per token, and all probabilities (float32).

    Experts are chosen by probability plus bias, only out of the `k_group` best groups; a group is
    worth its best expert (group_select_mode 0) or its best two together (1). Probabilities are a
    softmax (norm_type 0), which is normalised over the chosen with renorm 1, or sigmoids (1), which
    always are. So does the op's kernel (csrc/moe/moe_gating_top_k of vllm-ascend).
    """
    require_choice("renorm", renorm, (0, 1))
    require_choice("group_select_mode", group_select_mode, (0, 1))
    require_choice("norm_type", norm_type, (0, 1))
    _check_gate(x, bias_opt, k, k_group, group_count)
    weights, experts, norm = _gate(
        x,
        bias_opt,
        k=k,
        k_group=k_group,
        group_count=group_count,
        by_two_best=group_select_mode == 1,
        sigmoid=norm_type == 1,
        renorm=norm_type == 1 or renorm == 1,
        factor=routed_scaling_factor,
        eps=eps,
    )
    return weights, experts, norm if out_flag else torch.zeros_like(norm)


@reference("npu::npu_moe_gating_top_k")
def npu_gating_top_k(
    x: torch.Tensor,  # [tokens, experts]
    k: int,
    *,
    bias: torch.Tensor | None = None,  # [experts], x's dtype
    input_ids: torch.Tensor | None = None,
    tid2eid: torch.Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> Routed:
    """Do the same, without renorm; the choice by token id (`input_ids`, `tid2eid`) is refused."""
    refuse(input_ids=input_ids, tid2eid=tid2eid)
    require_choice("renorm", renorm, (0,))
    return gating_top_k(
        x,
        k,
        k_group,
        group_count,
        group_select_mode,
        renorm,
        norm_type,
        out_flag,
        routed_scaling_factor,
        eps,
        bias,
    )


@reference("npu::npu_moe_gating_top_k_softmax")
def gating_top_k_softmax(
    x: torch.Tensor,  # [..., experts], 2-D or 3-D
    finished: torch.Tensor | None = None,
    k: int = 1,
) -> Routed:
    """Give the k largest probabilities, their experts, and each one's row (both int32).

    The row number of choice j of token i is `j * tokens + i`, as init_routing wants it.
    """
    refuse(finished=finished)
    require_dtype("x", x, FLOATS)
    require(x.dim() in (2, 3), f"x has {x.dim()} dimensions; valid: 2, 3")
    require(1 <= k <= min(x.shape[-1], 1024), f"k is {k}; valid: 1 to {x.shape[-1]}")
    norm = x.float().softmax(-1)
    experts = _top(norm, k)
    tokens = x.numel() // x.shape[-1]
    numbers = torch.arange(tokens * k, dtype=torch.int32, device=x.device)
    rows = numbers.reshape(k, tokens).t().reshape(experts.shape)
    return norm.gather(-1, experts).to(x.dtype), experts.to(torch.int32), rows.contiguous()


@reference("npu::npu_moe_init_routing_v2")
def init_routing_v2(
    x: torch.Tensor,  # [tokens, hidden]
    expert_idx: torch.Tensor,  # [tokens, k], int32
    *,
    scale: torch.Tensor | None = None,  # [tokens], or [experts, hidden] with quant_mode 1; float32
    offset: torch.Tensor | None = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: list[int] | None = None,
    row_idx_type: int = 0,
    x_dtype: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Copy each token once per expert that it chose, sorted by expert.

    Experts outside `active_expert_range` are left out. `quant_mode` 1 quantises the copies to int8.

    Returns:
        The copies [tokens * k, hidden]; where each (token, choice) went, -1 for left out (int32,
        row_idx_type 0), or where each copy came from (1); tokens per active expert (int64), counted
        (expert_tokens_num_type 1) or running (0); the copies' scales [tokens * k] (float32).
    """
    refuse(offset=offset, drop_pad_mode=drop_pad_mode, x_dtype=x_dtype)
    require_choice("quant_mode", quant_mode, (-1, 1))
    require_choice("expert_tokens_num_type", expert_tokens_num_type, (0, 1))
    require(expert_tokens_num_flag, "expert_tokens_num_flag is False; valid: True")
    require_choice("row_idx_type", row_idx_type, (0, 1))
    require_dtype("x", x, (*FLOATS, torch.int8) if quant_mode == -1 else FLOATS)
    require_dtype("expert_idx", expert_idx, (torch.int32,))
    require(x.dim() == 2, f"x has {x.dim()} dimensions; valid: 2")
    require_shape("expert_idx", expert_idx, x.shape[0], None)
    total = expert_idx.numel()
    require_choice("active_num", active_num, (-1, 0, total))
    first, last = active_expert_range or [0, expert_num]
    require(0 <= first < last <= expert_num, f"experts {first} to {last} of {expert_num}")

    chosen = expert_idx.reshape(-1).long()
    require(
        not total or (int(chosen.min()) >= 0 and int(chosen.max()) < expert_num),
        f"expert_idx is outside [0, {expert_num})",
    )
    order = torch.sort(chosen, stable=True).indices
    active = chosen[order]
    order = order[(active >= first) & (active < last)]
    source = order // max(expert_idx.shape[1], 1)
    counts = torch.bincount(chosen[order] - first, minlength=last - first)
    copies, scales = _copies(x, source, chosen[order] - first, scale, quant_mode, total)
    rows = torch.full((total,), -1, dtype=torch.int32, device=x.device)
    places = torch.arange(order.numel(), dtype=torch.int32, device=x.device)
    if row_idx_type == 0:
        rows[order] = places
    else:
        rows[: order.numel()] = order.to(torch.int32)
    counts = counts if expert_tokens_num_type == 1 else counts.cumsum(0)
    return copies, rows, counts, scales


def _copies(
    x: torch.Tensor,  # [tokens, hidden]
    source: torch.Tensor,  # [copies]
    experts: torch.Tensor,  # [copies], from the first active one
    scale: torch.Tensor | None,
    quant_mode: int,
    total: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the rows and their scales, padded with zeros to `total`."""
    rows = x[source]
    scales = x.new_zeros(total, dtype=torch.float32)
    if scale is not None:
        require_dtype("scale", scale, (torch.float32,))
    if quant_mode == 1:
        wide = rows.float()
        if scale is not None:
            require_shape("scale", scale, None, x.shape[1])
            wide = wide * scale[experts]
        rows, scales[: len(source)] = quantize_rows(wide)
    elif scale is not None:
        require_shape("scale", scale, x.shape[0])
        scales[: len(source)] = scale[source]
    copies = rows.new_zeros((total, x.shape[1]))
    copies[: len(source)] = rows
    return copies, scales


@reference("npu::npu_moe_token_permute")
def token_permute(
    tokens: torch.Tensor,  # [tokens, hidden]
    indices: torch.Tensor,  # [tokens, k] or [tokens]
    num_out_tokens: int | None = None,
    padded_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy each token once per expert, sorted by expert; also give where each copy went (int32).

    Of the copies, the first `num_out_tokens` are given; 0 and None stand for all.
    """
    refuse(padded_mode=padded_mode)
    require_dtype("tokens", tokens, FLOATS)
    require_dtype("indices", indices, INTS)
    require(indices.dim() in (1, 2), f"indices has {indices.dim()} dimensions; valid: 1, 2")
    require(indices.shape[0] == tokens.shape[0], "indices and tokens differ in tokens")
    k = indices.shape[1] if indices.dim() == 2 else 1
    require(k <= 512, f"{k} experts per token; valid: up to 512")
    order = torch.sort(indices.reshape(-1), stable=True).indices
    went = torch.sort(order).indices.to(torch.int32)
    return tokens[order // max(k, 1)][: num_out_tokens or None], went


@reference("npu::npu_moe_token_unpermute")
def token_unpermute(
    permuted_tokens: torch.Tensor,  # [copies, hidden]
    sorted_indices: torch.Tensor,  # [tokens * k]: where each copy went
    probs: torch.Tensor | None = None,  # [tokens, k]
    padded_mode: bool = False,
    restore_shape: list[int] | None = None,
) -> torch.Tensor:
    """Bring copies back and add those of a token, weighted; `restore_shape` is for padded_mode.

    k is 1 without probs. A place beyond the copies was dropped and counts as 0.
    """
    refuse(padded_mode=padded_mode)
    require_dtype("permuted_tokens", permuted_tokens, FLOATS)
    require_dtype("sorted_indices", sorted_indices, INTS)
    require(sorted_indices.dim() == 1, "sorted_indices must have one dimension")
    places = sorted_indices.long()
    k = 1
    if probs is not None:
        require_same_dtype(permuted_tokens=permuted_tokens, probs=probs)
        require(
            probs.dim() == 2 and probs.numel() == places.numel(),
            f"probs has shape {tuple(probs.shape)} for {places.numel()} copies",
        )
        k = probs.shape[1]
    require(not bool((places < 0).any()), "sorted_indices has a negative place")
    padded = torch.cat((permuted_tokens, permuted_tokens.new_zeros(1, permuted_tokens.shape[1])))
    back = padded[places.clamp(max=permuted_tokens.shape[0])].float()
    back = back.reshape(places.numel() // max(k, 1), k, -1)
    if probs is not None:
        back = back * probs.float().unsqueeze(-1)
    return back.sum(1).to(permuted_tokens.dtype)
