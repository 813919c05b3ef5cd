"""What multi-head latent attention (MLA) needs besides attention.

Documented in Ascend's API reference of torch_npu (`npu_kv_rmsnorm_rope_cache`,
`npu_interleave_rope`) and in torch_npu's docstrings (`npu_attention_update`,
`npu_transpose_batchmatmul`). The sizes are DeepSeek's: 512 of the latent and 64 with rope.

float32 is accepted although a real NPU takes float16 and bfloat16 only for some of these: the
simulator's tests compare tokens with a CPU's, which needs float32.
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
from npu_sim.references.kv_cache import write_rows
from npu_sim.references.registry import reference
from npu_sim.references.rope import rotate_pairs

ROPE_SIZE = 64
LATENT_SIZE = 512


def _unpaired(x: torch.Tensor) -> torch.Tensor:
    """Give the even dimensions of the last axis, then the odd ones."""
    return torch.cat((x[..., ::2], x[..., 1::2]), -1)


@reference("npu::npu_interleave_rope")
def interleave_rope(
    x: torch.Tensor,  # [batch, heads, seq, 64]
    cos: torch.Tensor,  # [batch, 1, seq or 1, 64]
    sin: torch.Tensor,  # cos's shape
) -> torch.Tensor:
    """Bring pairs (2i, 2i + 1) to (i, i + 32), then rotate by halves."""
    require_dtype("x", x, FLOATS)
    require_same_dtype(x=x, cos=cos, sin=sin)
    require_shape("x", x, None, None, None, ROPE_SIZE)
    require(
        cos.dim() == 4 and cos.shape[2] in (1, x.shape[2]),
        f"cos has shape {tuple(cos.shape)} for x {tuple(x.shape)}",
    )
    require_shape("cos", cos, x.shape[0], 1, cos.shape[2], ROPE_SIZE)
    require_shape("sin", sin, *cos.shape)
    return rotate_pairs(_unpaired(x), cos, sin, "half")


@reference("npu::npu_kv_rmsnorm_rope_cache")
def kv_rmsnorm_rope_cache(
    kv: torch.Tensor,  # [batch, 1, seq, 576]: the latent, then the rope part
    gamma: torch.Tensor,  # [512]
    cos: torch.Tensor,  # [batch, 1, seq, 64]
    sin: torch.Tensor,  # [batch, 1, seq, 64]
    index: torch.Tensor,  # [batch * seq], int64: slots
    k_cache: torch.Tensor,  # [blocks, block_size, 1, 64]
    ckv_cache: torch.Tensor,  # [blocks, block_size, 1, 512]
    *,
    k_rope_scale: torch.Tensor | None = None,
    c_kv_scale: torch.Tensor | None = None,
    k_rope_offset: torch.Tensor | None = None,
    c_kv_offset: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Norm the latent, rotate the rest, and write both to their caches in place.

    Of the layouts of caches only the paged one ("PA", "PA_BNSD") has a reference. Negative slots
    are skipped.

    Returns:
        Both caches, then what was written: [batch, 1, seq, 64] and [batch, 1, seq, 512]; these two
        are 0 without is_output_kv, where the real ones are undefined.
    """
    refuse(
        k_rope_scale=k_rope_scale,
        c_kv_scale=c_kv_scale,
        k_rope_offset=k_rope_offset,
        c_kv_offset=c_kv_offset,
        v=v,
    )
    require_choice("cache_mode", cache_mode, ("PA", "PA_BNSD"))
    require_dtype("kv", kv, FLOATS)
    require_same_dtype(kv=kv, gamma=gamma, cos=cos, sin=sin, k_cache=k_cache, ckv_cache=ckv_cache)
    require_dtype("index", index, (torch.int64,))
    require_shape("kv", kv, None, 1, None, LATENT_SIZE + ROPE_SIZE)
    require_shape("gamma", gamma, LATENT_SIZE)
    require_shape("index", index, kv.shape[0] * kv.shape[2])
    require_shape("k_cache", k_cache, None, None, 1, ROPE_SIZE)
    require_shape("ckv_cache", ckv_cache, *k_cache.shape[:2], 1, LATENT_SIZE)
    latent, rope = kv.split([LATENT_SIZE, ROPE_SIZE], -1)
    rope = interleave_rope(rope, cos, sin)
    wide = latent.float()
    rms = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    latent = (wide * rms * gamma.float()).to(kv.dtype)
    write_rows(rope.reshape(-1, 1, ROPE_SIZE), k_cache, index)
    write_rows(latent.reshape(-1, 1, LATENT_SIZE), ckv_cache, index)
    if not is_output_kv:
        rope, latent = torch.zeros_like(rope), torch.zeros_like(latent)
    return k_cache, ckv_cache, rope, latent


@reference("npu::npu_attention_update")
def attention_update(
    lse: list[torch.Tensor],  # [rows] each, float32
    local_out: list[torch.Tensor],  # [rows, size] each
    update_type: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge attention over parts of the keys by the logarithms of their sums.

    Returns:
        The merged attention, and its log sums, which are 0 with update_type 0 (undefined on a real
        NPU).
    """
    require_choice("update_type", update_type, (0, 1))
    require(0 < len(lse) == len(local_out), f"{len(lse)} log sums for {len(local_out)} results")
    for sums, out in zip(lse, local_out, strict=True):
        require_dtype("lse", sums, (torch.float32,))
        require_dtype("local_out", out, FLOATS)
        require_shape("local_out", out, sums.numel(), None)
    # A part in which a row saw no key has +inf, as attention gives it, and takes no part.
    sums = torch.stack([s.reshape(-1) for s in lse])
    sums = sums.masked_fill(sums == float("inf"), float("-inf"))
    total = torch.logsumexp(sums, 0)
    weights = torch.exp(sums - total).nan_to_num(0.0)
    merged = (weights.unsqueeze(-1) * torch.stack(local_out).float()).sum(0)
    return merged.to(local_out[0].dtype), total if update_type else torch.zeros_like(total)


@reference("npu::npu_transpose_batchmatmul")
def transpose_batchmatmul(
    input: torch.Tensor,  # 3-D
    weight: torch.Tensor,  # 3-D, input's dtype
    *,
    bias: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    perm_x1: list[int] | None = None,
    perm_x2: list[int] | None = None,
    perm_y: list[int] | None = None,
    batch_split_factor: int | None = 1,
) -> torch.Tensor:
    """Permute both to [batch, m, k] and [batch, k, n], multiply, and permute the product."""
    refuse(bias=bias, scale=scale)
    require_choice("batch_split_factor", batch_split_factor, (None, 1))
    require_dtype("input", input, FLOATS)
    require_same_dtype(input=input, weight=weight)
    require(input.dim() == weight.dim() == 3, "input and weight must have 3 dimensions")
    left = input.permute(perm_x1 or [0, 1, 2]).float()
    right = weight.permute(perm_x2 or [0, 1, 2]).float()
    require(
        left.shape[0] == right.shape[0] and left.shape[2] == right.shape[1],
        f"{tuple(left.shape)} does not fit {tuple(right.shape)}",
    )
    product = torch.bmm(left, right).to(input.dtype)
    return product.permute(perm_y or [0, 1, 2]).contiguous()
