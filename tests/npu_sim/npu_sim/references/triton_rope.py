"""vllm-ascend's rotary embedding kernels, which Triton's interpreter takes too long for.

The kernels go through one token after another, at some milliseconds each; start-up alone runs a
thousand tokens through every layer. These compute the same, in the same order of operations, and a
test holds them to the interpreter (which cuts bfloat16 off, where these round). `triton_bridge`
uses them for kernels of these names with these parameters, and interprets every other.
"""

import torch

from npu_sim.references.checks import refuse, require
from npu_sim.references.registry import reference


@reference("triton::_triton_rope")
def triton_rope(  # noqa: PLR0917 - the kernel's parameters
    q_ptr: torch.Tensor,  # [tokens, query_heads, head_size], contiguous; changed in place
    q_row_stride: int,
    k_ptr: torch.Tensor,  # [tokens, key_heads, head_size], contiguous; changed in place
    k_row_stride: int,
    cos_ptr: torch.Tensor | None,  # [tokens, rope_dim / 2], without USE_COS_SIN
    cos_row_stride: int | None,
    sin_ptr: torch.Tensor | None,  # likewise
    sin_row_stride: int | None,
    cos_sin_ptr: torch.Tensor | None,  # [positions, rope_dim]: cosines, then sines
    cos_sin_row_stride: int | None,
    pos_ptr: torch.Tensor | None,  # [tokens]
    num_tokens: int,
    n_qh: int,
    n_kh: int,
    hd: int,
    rope_dim: int,
    pad_rope_dim: int,
    BLOCK_SIZE_HEAD: int,  # noqa: N803 - the kernel's name
    IS_NEOX_STYLE: bool,  # noqa: N803
    USE_COS_SIN: bool,  # noqa: N803
) -> None:
    """Rotate the first rope_dim dimensions of every head, in place."""
    table = cos_ptr, sin_ptr
    if USE_COS_SIN:
        table = _at_positions(cos_sin_ptr, pos_ptr, num_tokens, rope_dim)
    else:
        refuse(cos_sin_ptr=cos_sin_ptr)
    for tensor, heads in ((q_ptr, n_qh), (k_ptr, n_kh)):
        _turn(tensor, heads, hd, num_tokens, table, rope_dim, by_halves=IS_NEOX_STYLE)


@reference("triton::_triton_rope_siso")
def triton_rope_siso(  # noqa: PLR0917 - the kernel's parameters
    qk_ptr: torch.Tensor,  # [tokens, heads, head_size], contiguous; changed in place
    qk_row_stride: int,
    cos_ptr: torch.Tensor | None,  # [tokens, rope_dim / 2 or more], without USE_COS_SIN
    cos_row_stride: int | None,
    sin_ptr: torch.Tensor | None,  # likewise
    sin_row_stride: int | None,
    cos_sin_ptr: torch.Tensor | None,  # [positions, rope_dim]: cosines, then sines
    cos_sin_row_stride: int | None,
    pos_ptr: torch.Tensor | None,  # [tokens]
    num_tokens: int,
    n_h: int,
    hd: int,
    rope_dim: int,
    pad_n_h: int,
    pad_rope_dim: int,
    BLOCK_SIZE: int,  # noqa: N803 - the kernel's name
    IS_NEOX_STYLE: bool,  # noqa: N803
    USE_COS_SIN: bool,  # noqa: N803
) -> None:
    """Do the same to one tensor."""
    tables = cos_ptr, cos_row_stride, sin_ptr, sin_row_stride, cos_sin_ptr, cos_sin_row_stride
    sizes = num_tokens, n_h, 0, hd, rope_dim, pad_rope_dim, BLOCK_SIZE
    how = IS_NEOX_STYLE, USE_COS_SIN
    triton_rope(qk_ptr, qk_row_stride, qk_ptr, qk_row_stride, *tables, pos_ptr, *sizes, *how)


def _at_positions(
    table: torch.Tensor | None,  # [positions, rope_dim]: cosines, then sines
    positions: torch.Tensor | None,  # [tokens]
    num_tokens: int,
    rope_dim: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the cosines and sines of the tokens' positions, [tokens, rope_dim / 2] each."""
    assert table is not None
    assert positions is not None
    positions = positions.reshape(-1)[:num_tokens].long()
    if num_tokens:
        highest = int(positions.max())
        require(
            int(positions.min()) >= 0 and highest < table.shape[0],
            f"position {highest} is beyond a table of {table.shape[0]}",
        )
    chosen, half = table[positions], rope_dim // 2
    return chosen[:, :half], chosen[:, half:rope_dim]


def _turn(
    tensor: torch.Tensor,  # [tokens, heads, head_size], contiguous; changed in place
    heads: int,
    head_size: int,
    num_tokens: int,
    table: tuple[torch.Tensor | None, torch.Tensor | None],  # [tokens, rope_dim / 2 or more] each
    rope_dim: int,
    *,
    by_halves: bool,
) -> None:
    half = rope_dim // 2
    rows = tensor.view(-1, heads, head_size)[:num_tokens, :, :rope_dim] if heads else None
    if rows is None or not rows.numel():
        return
    cos, sin = table
    assert cos is not None
    assert sin is not None
    cos, sin = (part[:num_tokens, :half].float().unsqueeze(1) for part in (cos, sin))
    split = slice(0, half), slice(half, rope_dim)
    if not by_halves:
        split = slice(0, rope_dim, 2), slice(1, rope_dim, 2)
    first, second = (rows[..., part].float() for part in split)
    turned = first * cos - second * sin, second * cos + first * sin
    for part, values in zip(split, turned, strict=True):
        rows[..., part] = values.to(tensor.dtype)
