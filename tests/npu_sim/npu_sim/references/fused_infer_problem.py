"""What FusedInferAttentionScore's arguments must look like.

What makes no sense, or has no reference, is refused here; what Ascend's documents do not allow
besides is in `fused_infer_limits.py`.

A layout such as TND_NTD names that of the query and that of the result.
"""

from dataclasses import dataclass

import torch

from npu_sim.references import fused_infer_limits
from npu_sim.references.checks import (
    FLOATS,
    require,
    require_choice,
    require_dtype,
    require_same_dtype,
    require_shape,
)

UNLIMITED = 2147483647
COMPRESSED_MASK = 2048  # size of the triangle that modes 2, 3 and 4 want instead of a full mask
# How the result's dimensions follow from those of the query.
LAYOUTS: dict[str, tuple[int, ...]] = {
    "TND": (0, 1, 2),
    "BSH": (0, 1, 2),
    "BSND": (0, 1, 2, 3),
    "BNSD": (0, 1, 2, 3),
    "TND_NTD": (1, 0, 2),
    "BNSD_BSND": (0, 2, 1, 3),
    "BNSD_NBSD": (1, 0, 2, 3),
    "BSND_NBSD": (2, 0, 1, 3),
}
# MLA with absorbed weights: the latent's and the rope part's size, and the most rows per sequence.
LATENT_SIZE, ROPE_SIZE, MAX_LATENT_ROWS = 512, 64, 16


@dataclass(frozen=True)
class Problem:
    """One call's arguments, checked."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    q_lengths: list[int] | None
    kv_lengths: list[int] | None
    block_table: torch.Tensor | None
    num_heads: int
    num_kv_heads: int
    scale: float
    pre_tokens: int
    next_tokens: int
    layouts: str
    sparse_mode: int
    block_size: int
    query_rope: torch.Tensor | None = None
    key_rope: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    want_lse: bool = False

    def __post_init__(self) -> None:
        require_choice("input_layout", self.layouts, tuple(LAYOUTS))
        require_dtype("query", self.query, FLOATS)
        require_same_dtype(query=self.query, key=self.key, value=self.value)
        dims = 3 if self.layout in ("TND", "BSH") else 4
        require(self.query.dim() == dims, f"query must have {dims} dimensions in {self.layout}")
        _check_heads(self)
        _check_mask(self)
        if self.block_table is not None:
            _check_pages(self)
        _check_rope(self)
        if self.sink is not None:
            require_dtype("learnable_sink", self.sink, (self.query.dtype,))
            require_shape("learnable_sink", self.sink, self.num_heads)
        fused_infer_limits.check(self)

    @property
    def layout(self) -> str:
        """The layout of the query, and of keys that are not paged."""
        return self.layouts.partition("_")[0]

    @property
    def batch(self) -> int:
        """Number of sequences."""
        if self.layout == "TND":
            return len(self.q_lengths or ())
        return self.query.shape[0]

    @property
    def q_size(self) -> int:
        """Rows per sequence in a padded layout."""
        return self.query.shape[2 if self.layout == "BNSD" else 1]

    @property
    def is_paged(self) -> bool:
        """Whether keys and values are in the blocks of a cache."""
        return self.block_table is not None

    @property
    def value_size(self) -> int:
        """The size of a value's head."""
        flat = self.layout == "BSH" or (self.is_paged and self.value.dim() == 3)
        return self.value.shape[-1] // (self.num_kv_heads if flat else 1)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The result's shape: the query's, with the value's size of head."""
        size = self.value_size
        if self.layout == "BSH":
            size *= self.num_heads
        return (*self.query.shape[:-1], size)


def _check_heads(problem: Problem) -> None:
    heads, kv_heads = problem.num_heads, problem.num_kv_heads
    absorbed = problem.query_rope is not None and problem.query.shape[-1] == LATENT_SIZE
    most = 128 if absorbed else 64
    require(
        heads % kv_heads == 0 and heads // kv_heads <= most,
        f"num_heads {heads} and num_key_value_heads {kv_heads}: valid are multiples up to {most}",
    )
    require(heads <= 256, f"num_heads is {heads}; valid: up to 256")
    shape = problem.query.shape
    if problem.layout == "BSH":
        require(shape[2] % heads == 0, f"{shape[2]} columns are not {heads} heads")
        size = shape[2] // heads
    else:
        axis = 1 if problem.layout in ("TND", "BNSD") else 2
        require(shape[axis] == heads, f"query has {shape[axis]} heads, num_heads is {heads}")
        size = shape[-1]
    require(size <= 512, f"heads of size {size}; valid: up to 512")


def _check_mask(problem: Problem) -> None:
    mode, mask = problem.sparse_mode, problem.mask
    require_choice("sparse_mode", mode, (0, 1, 2, 3, 4))
    if mask is None:
        require(mode == 0, f"sparse_mode {mode} needs atten_mask")
        return
    require_dtype("atten_mask", mask, (torch.bool, torch.int8, torch.uint8))
    if mode < 2:
        whole = problem.pre_tokens == UNLIMITED and problem.next_tokens == UNLIMITED
        require(whole or mode == 1, "pre_tokens and next_tokens have no reference in sparse_mode 0")
        return
    side = COMPRESSED_MASK
    fits = mask.shape[-2:] == (side, side) and mask.numel() == side * side
    require(fits, f"atten_mask has shape {tuple(mask.shape)}; valid: ({side}, {side})")
    triangle = mask.reshape(side, side)
    corners = [bool(triangle[0, 0]), bool(triangle[0, -1]), bool(triangle[-1, 0])]
    require(
        corners == [False, True, False],
        "atten_mask must be 1 above the diagonal and 0 elsewhere",
    )


def _check_pages(problem: Problem) -> None:
    table, size = problem.block_table, problem.block_size
    assert table is not None
    require_dtype("block_table", table, (torch.int32,))
    require(table.dim() == 2, f"block_table has {table.dim()} dimensions; valid: 2")
    require(
        table.shape[0] == problem.batch,
        f"block_table has {table.shape[0]} rows for {problem.batch} sequences",
    )
    require(problem.kv_lengths is not None, "a paged cache needs actual_seq_lengths_kv")
    require(problem.key.dim() in (3, 4), "a paged cache has 3 or 4 dimensions")
    tokens_axis = 1 if problem.key.dim() == 3 else 2
    for name, cache in (("key", problem.key), ("value", problem.value)):
        require(
            cache.shape[tokens_axis] == size,
            f"{name} has blocks of {cache.shape[tokens_axis]}, block_size is {size}",
        )
        if cache.dim() == 3:
            require(
                cache.shape[2] <= 65535, f"{name} has rows of {cache.shape[2]}; valid: to 65535"
            )
            continue
        require(
            cache.shape[1] == problem.num_kv_heads,
            f"{name} has {cache.shape[1]} heads, num_key_value_heads is {problem.num_kv_heads}",
        )


def _check_rope(problem: Problem) -> None:
    query_rope, key_rope = problem.query_rope, problem.key_rope
    require(
        (query_rope is None) == (key_rope is None),
        "query_rope and key_rope must be given together",
    )
    if query_rope is None or key_rope is None:
        return
    require_same_dtype(query=problem.query, query_rope=query_rope, key_rope=key_rope)
    require(problem.layout != "BSH", "query_rope has no reference with BSH")
    require_shape("query_rope", query_rope, *problem.query.shape[:-1], None)
    require_shape("key_rope", key_rope, *problem.key.shape[:-1], None)
    if problem.query.shape[-1] == LATENT_SIZE:
        require(problem.block_table is not None, "absorbed MLA needs a paged cache")
        require_shape("query_rope", query_rope, *problem.query.shape[:-1], ROPE_SIZE)
