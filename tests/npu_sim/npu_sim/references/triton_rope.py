"""vllm-ascend's rotary embedding kernel, which Triton's interpreter takes too long for.

The kernel goes through one token after another, at some milliseconds each; start-up alone runs a
thousand tokens through every layer. This computes the same, in the same order of operations, and a
test holds it to the interpreter (which cuts bfloat16 off, where this rounds). `triton_bridge` uses
it for a kernel of this name with these parameters, and interprets every other.
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
    half = rope_dim // 2
    if USE_COS_SIN:
        assert cos_sin_ptr is not None
        assert pos_ptr is not None
        positions = pos_ptr.reshape(-1)[:num_tokens].long()
        if num_tokens:
            highest = int(positions.max())
            require(
                int(positions.min()) >= 0 and highest < cos_sin_ptr.shape[0],
                f"position {highest} is beyond a table of {cos_sin_ptr.shape[0]}",
            )
        table = cos_sin_ptr[positions].float()
        cos, sin = table[:, :half], table[:, half:rope_dim]
    else:
        refuse(cos_sin_ptr=cos_sin_ptr)
        assert cos_ptr is not None
        assert sin_ptr is not None
        cos, sin = (t[:num_tokens, :half].float() for t in (cos_ptr, sin_ptr))
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    for tensor, heads in ((q_ptr, n_qh), (k_ptr, n_kh)):
        rows = tensor.view(-1, heads, hd)[:num_tokens, :, :rope_dim] if heads else None
        if rows is None or not rows.numel():
            continue
        split = slice(0, half), slice(half, rope_dim)
        if not IS_NEOX_STYLE:
            split = slice(0, rope_dim, 2), slice(1, rope_dim, 2)
        first, second = (rows[..., part].float() for part in split)
        turned = first * cos - second * sin, second * cos + first * sin
        for part, values in zip(split, turned, strict=True):
            rows[..., part] = values.to(tensor.dtype)
