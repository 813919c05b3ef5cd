"""Rotary position embeddings.

Documented in torch_npu's docstrings (`npu_rotary_mul`, `npu_mrope`, `npu_apply_rotary_pos_emb`).
The mode "half" pairs dimension i with i + size / 2 (GPT-NeoX), "interleave" pairs 2i with 2i + 1
(GPT-J); vllm-ascend writes "interleaved" for the latter where it calls npu_mrope.
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
from npu_sim.references.registry import reference

INTERLEAVE = ("interleave", "interleaved")


def _rotated(x: torch.Tensor, mode: str) -> torch.Tensor:
    """Give each pair (a, b) of the last dimension as (-b, a)."""
    if mode == "half":
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotate_pairs(
    x: torch.Tensor,  # [..., size]
    cos: torch.Tensor,  # [..., size], broadcast
    sin: torch.Tensor,  # [..., size], broadcast
    mode: str,
) -> torch.Tensor:
    """Give `x * cos + rotated(x) * sin`, in float32 and rounded once."""
    wide = x.float()
    return (wide * cos.float() + _rotated(wide, mode) * sin.float()).to(x.dtype)


@reference("npu::npu_rotary_mul")
def rotary_mul(
    input: torch.Tensor,  # 4-D: BNSD, BSND or SBND
    r1: torch.Tensor,  # cos, 4-D, 1 where it is broadcast
    r2: torch.Tensor,  # sin, r1's shape
    rotary_mode: str = "half",
    rotate: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rotate by given cosines and sines."""
    refuse(rotate=rotate)
    require_choice("rotary_mode", rotary_mode, ("half", "interleave"))
    require_dtype("input", input, FLOATS)
    for name, factor in (("r1", r1), ("r2", r2)):
        fits = factor.dim() == input.dim() == 4 and all(
            size in (1, full) for size, full in zip(factor.shape, input.shape, strict=True)
        )
        require(fits, f"{name} {tuple(factor.shape)} does not fit input {tuple(input.shape)}")
    size = input.shape[-1]
    require(size % 2 == 0 and size < 896, f"the last dimension is {size}; valid: even, below 896")
    return rotate_pairs(input, r1, r2, rotary_mode)


@reference("npu::npu_apply_rotary_pos_emb")
def apply_rotary_pos_emb(
    query: torch.Tensor,  # [batch, seq, heads, size], or [tokens, heads, size] (TND)
    key: torch.Tensor,  # likewise, with its own number of heads
    cos: torch.Tensor,  # [batch, seq, 1, size] or [tokens, 1, size]
    sin: torch.Tensor,  # cos's shape
    layout: str = "BSND",
    rotary_mode: str = "half",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate query and key in place, and give them."""
    require_choice("layout", layout, ("BSND", "TND"))
    require_choice("rotary_mode", rotary_mode, ("half",))
    require_same_dtype(query=query, key=key, cos=cos, sin=sin)
    require_dtype("query", query, FLOATS)
    dims = len(layout)
    require(
        all(t.dim() == dims for t in (query, key, cos, sin)),
        f"query, key, cos and sin must have {dims} dimensions in layout {layout}",
    )
    size = query.shape[-1]
    require_choice("the last dimension", size, (64, 128))
    require_shape("key", key, *query.shape[:-2], None, size)
    require_shape("cos", cos, *query.shape[:-2], 1, size)
    require_shape("sin", sin, *cos.shape)
    for x in (query, key):
        x.copy_(rotate_pairs(x, cos, sin, rotary_mode))
    return query, key


def _rotate_heads(
    x: torch.Tensor,  # [tokens, heads * head_size]
    cos: torch.Tensor,  # [tokens, rotary_size]
    sin: torch.Tensor,  # [tokens, rotary_size]
    head_size: int,
    mode: str,
) -> torch.Tensor:
    """Rotate the first rotary_size dimensions of every head."""
    require(x.shape[-1] % head_size == 0, f"{x.shape[-1]} columns are not heads of {head_size}")
    rotary_size = cos.shape[-1]
    heads = x.reshape(x.shape[0], x.shape[-1] // head_size, head_size)
    turned = rotate_pairs(heads[..., :rotary_size], cos.unsqueeze(1), sin.unsqueeze(1), mode)
    return torch.cat((turned, heads[..., rotary_size:]), -1).reshape(x.shape)


def _cos_sin(
    positions: torch.Tensor,  # [tokens], or [3, tokens] with sections
    cos_sin_cache: torch.Tensor,  # [max_positions, rotary_size]: cosines, then sines
    mode: str,
    sections: list[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give cosines and sines spread over both members of each pair, [tokens, rotary_size].

    With `sections` the first pairs turn by the first row of positions, the next by the second.
    """
    if positions.numel():
        highest, lowest = int(positions.max()), int(positions.min())
        require(
            lowest >= 0 and highest < cos_sin_cache.shape[0],
            f"positions {lowest} to {highest} are beyond a table of {cos_sin_cache.shape[0]}",
        )
    cos, sin = cos_sin_cache[positions.long()].chunk(2, -1)
    if sections is not None:
        cos, sin = (
            torch.cat([part[row] for row, part in enumerate(table.split(sections, -1))], -1)
            for table in (cos, sin)
        )
    if mode == "half":
        return torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)


@reference("npu::npu_mrope")
def mrope(
    positions: torch.Tensor,  # [tokens], or [3, tokens] with sections; int32 or int64
    query: torch.Tensor,  # [tokens, query_heads * head_size]
    key: torch.Tensor,  # [tokens, key_heads * head_size]
    cos_sin_cache: torch.Tensor,  # [max_positions, rotary_size]: cosines, then sines
    head_size: int,
    *,
    mrope_section: list[int] | None = None,
    rotary_mode: str | None = "half",
    cache_mode: str | None = "default",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate query and key by positions; heads wider than the table keep their rest.

    With an `mrope_section` other than zeros, M-RoPE: a token has three positions, and the section
    says how many pairs turn by each of them.
    """
    sections = mrope_section if any(mrope_section or ()) else None
    require_choice("rotary_mode", rotary_mode, ("half", *INTERLEAVE))
    require_choice("cache_mode", cache_mode, ("default",))
    require_dtype("positions", positions, INTS)
    require_dtype("query", query, FLOATS)
    require_same_dtype(query=query, key=key, cos_sin_cache=cos_sin_cache)
    tokens = query.shape[0]
    require_shape("positions", positions, *(() if sections is None else (3,)), tokens)
    require_shape("query", query, tokens, None)
    require_shape("key", key, tokens, None)
    require_shape("cos_sin_cache", cos_sin_cache, None, None)
    unit = 16 if query.dtype == torch.float32 else 32
    rotary_size = cos_sin_cache.shape[1]
    require(
        rotary_size % unit == 0 and rotary_size <= head_size,
        f"rotary size {rotary_size}; valid: multiples of {unit} up to the head's {head_size}",
    )
    require(
        sections is None or (len(sections) == 3 and sum(sections) * 2 == rotary_size),
        f"mrope_section is {sections}; valid: three that make up half of {rotary_size}",
    )
    cos, sin = _cos_sin(positions, cos_sin_cache, str(rotary_mode), sections)
    turn = [_rotate_heads(x, cos, sin, head_size, str(rotary_mode)) for x in (query, key)]
    return turn[0], turn[1]


@reference("atb::_npu_rotary_embedding")
def rotary_embedding(
    positions: torch.Tensor,  # [tokens], int64
    query: torch.Tensor,  # [tokens, query_heads * head_size]
    key: torch.Tensor,  # [tokens, key_heads * head_size]
    head_size: int,
    cos_sin_cache: torch.Tensor,  # [max_positions, rotary_size]: cosines, then sines
    is_neox_style: bool,
) -> None:
    """Rotate query and key in place (ATB's RopeOperation over a table)."""
    require_dtype("positions", positions, INTS)
    require_dtype("query", query, FLOATS)
    require_same_dtype(query=query, key=key, cos_sin_cache=cos_sin_cache)
    require_shape("query", query, positions.shape[0], None)
    require_shape("key", key, positions.shape[0], None)
    mode = "half" if is_neox_style else "interleave"
    cos, sin = _cos_sin(positions, cos_sin_cache, mode)
    for x in (query, key):
        x.copy_(_rotate_heads(x, cos, sin, head_size, mode))


@reference("_C_ascend::inplace_partial_rotary_mul")
def inplace_partial_rotary_mul(
    x: torch.Tensor,  # [tokens, 1, heads, size], written
    r1: torch.Tensor,  # cosines, float32 [tokens, 1, 1, end - start]
    r2: torch.Tensor,  # sines, likewise
    rotary_mode: str,
    partial_slice: list[int],
    negate_sin: bool = False,
) -> None:
    """Rotate the dimensions from start to end of `partial_slice`, in place.

    `negate_sin` rotates back. As vllm-ascend's own test of it on a device
    (`tests/e2e/nightly/single_node/ops/singlecard_ops/test_inplace_partial_rotary_mul.py`).
    """
    require_choice("rotary_mode", rotary_mode, ("interleave",))
    require_dtype("x", x, FLOATS)
    require(len(partial_slice) == 2, f"partial_slice is {partial_slice}; valid: start and end")
    start, end = partial_slice
    require(0 <= start < end <= x.shape[-1], f"partial_slice is {partial_slice} of {x.shape[-1]}")
    require((end - start) % 2 == 0, f"partial_slice is {partial_slice}; valid: an even length")
    for name, factor in (("r1", r1), ("r2", r2)):
        require_shape(name, factor, x.shape[0], 1, 1, end - start)
    part = x[..., start:end]
    part.copy_(rotate_pairs(part, r1, -r2 if negate_sin else r2, "interleave"))
