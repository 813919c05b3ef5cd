"""What FusedInferAttentionScore's arguments mean: layouts, lengths, pages and masks.

The limits come from torch_npu's docstring of `npu_fused_infer_attention_score`. Two that it names
are not kept, because vllm-ascend goes beyond them on real devices: no paged cache with TND, and few
numbers and sizes of heads with TND.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from npu_sim.references.attention import band
from npu_sim.references.checks import (
    FLOATS,
    fail,
    require,
    require_choice,
    require_dtype,
    require_same_dtype,
)

UNLIMITED = 2147483647
COMPRESSED_MASK = 2048  # size of the triangle that modes 2, 3 and 4 want instead of a full mask
LAYOUTS = ("TND", "BSH", "BSND", "BNSD")
MAX_BLOCK_SIZE = 512


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
    layout: str
    sparse_mode: int
    block_size: int
    sink: torch.Tensor | None = None

    def __post_init__(self) -> None:
        require_choice("input_layout", self.layout, LAYOUTS)
        require_dtype("query", self.query, FLOATS)
        require_same_dtype(query=self.query, key=self.key, value=self.value)
        require(
            self.block_table is not None
            or (self.key.is_contiguous() and self.value.is_contiguous()),
            "key and value must be contiguous where they are not a paged cache",
        )
        dims = 3 if self.layout in ("TND", "BSH") else 4
        require(self.query.dim() == dims, f"query must have {dims} dimensions in {self.layout}")
        _check_heads(self)
        _check_mask(self)
        if self.block_table is not None:
            _check_pages(self)

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
    def out_shape(self) -> tuple[int, ...]:
        """The result's shape: the query's, with the value's size of head."""
        value = self.value
        flat = self.layout == "BSH" or (self.block_table is not None and value.dim() == 3)
        size = value.shape[-1] // (self.num_kv_heads if flat else 1)
        if self.layout == "BSH":
            size *= self.num_heads
        return (*self.query.shape[:-1], size)


@dataclass(frozen=True)
class OneSequence:
    """One sequence of a call.

    `query` is [q_len, heads, size], `key` and `value` [kv_len, kv_heads, size]; `first` is its
    first row in a TND query, `masked` what its rows do not see.
    """

    index: int
    first: int
    q_len: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    masked: torch.Tensor | None


def _check_heads(problem: Problem) -> None:
    heads, kv_heads = problem.num_heads, problem.num_kv_heads
    require(
        heads % kv_heads == 0 and heads // kv_heads <= 64,
        f"num_heads {heads} and num_key_value_heads {kv_heads}: valid are multiples up to 64",
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
    unit = 16
    require(
        0 < size <= MAX_BLOCK_SIZE and size % unit == 0,
        f"block_size is {size}; valid: multiples of {unit} up to {MAX_BLOCK_SIZE}",
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


def sequences(problem: Problem) -> Iterator[OneSequence]:
    """Give the sequences that have rows and keys, with what each row does not see."""
    kv_spans = _kv_spans(problem)
    for index, (first, q_len) in enumerate(_query_spans(problem)):
        kv_first, kv_len = kv_spans[index]
        if q_len == 0 or kv_len == 0:
            continue
        key, value = (
            _keys_of(problem, cache, index, kv_first, kv_len)
            for cache in (problem.key, problem.value)
        )
        query = _rows_of(problem, problem.query, index, first, q_len)
        masked = _masked(problem, index, q_len, kv_len)
        yield OneSequence(index, first, q_len, query, key, value, masked)


def _cumulative(name: str, lengths: list[int] | None, total: int) -> list[int]:
    """Check the cumulative lengths of a TND tensor."""
    if lengths is None:
        fail(f"TND needs {name}")
    assert lengths is not None
    ends = [int(end) for end in lengths]
    require(
        all(a <= b for a, b in zip([0, *ends], ends, strict=False)),
        f"{name} {ends} is not a running total",
    )
    last = ends[-1] if ends else 0
    require(last == total, f"{name} ends at {last}, the tensor has {total} tokens")
    return ends


def _query_spans(problem: Problem) -> list[tuple[int, int]]:
    """Give (first row, rows) per sequence."""
    if problem.layout == "TND":
        ends = _cumulative("actual_seq_lengths", problem.q_lengths, problem.query.shape[0])
        return [(a, b - a) for a, b in zip([0, *ends], ends, strict=False)]
    lengths = _per_sequence("actual_seq_lengths", problem.q_lengths, problem, problem.q_size)
    return [(0, length) for length in lengths]


def _per_sequence(name: str, lengths: list[int] | None, problem: Problem, size: int) -> list[int]:
    """Give a length per sequence of a padded layout; one length stands for all."""
    batch = problem.batch
    if lengths is None:
        return [size] * batch
    require(
        len(lengths) == 1 or len(lengths) >= batch,
        f"{name} has {len(lengths)} elements for {batch} sequences",
    )
    chosen = [int(n) for n in (lengths * batch if len(lengths) == 1 else lengths)][:batch]
    require(all(0 <= n <= size for n in chosen), f"{name} {chosen} is outside [0, {size}]")
    return chosen


def _kv_spans(problem: Problem) -> list[tuple[int, int]]:
    """Give (first key, keys) per sequence."""
    name, lengths = "actual_seq_lengths_kv", problem.kv_lengths
    if problem.layout == "TND":
        require(
            lengths is not None and len(lengths) == problem.batch,
            f"{name} has {len(lengths or ())} elements for {problem.batch} sequences",
        )
    if problem.block_table is not None:
        limit = problem.block_table.shape[1] * problem.block_size
        return [(0, length) for length in _per_sequence(name, lengths, problem, limit)]
    if problem.layout == "TND":
        ends = _cumulative(name, lengths, problem.key.shape[0])
        return [(a, b - a) for a, b in zip([0, *ends], ends, strict=False)]
    size = problem.key.shape[2 if problem.layout == "BNSD" else 1]
    return [(0, length) for length in _per_sequence(name, lengths, problem, size)]


def _rows_of(
    problem: Problem, tensor: torch.Tensor, index: int, first: int, length: int
) -> torch.Tensor:
    """Give one sequence's rows as [length, heads, size], a view wherever strides allow it."""
    if problem.layout == "TND":
        return tensor[first : first + length]
    rows = tensor[index]
    if problem.layout == "BNSD":
        return rows[:, :length].transpose(0, 1)
    if problem.layout == "BSH":
        heads = problem.num_heads if tensor is problem.query else problem.num_kv_heads
        rows = rows.unflatten(-1, (heads, -1))
    return rows[:length]


def _keys_of(
    problem: Problem, cache: torch.Tensor, index: int, first: int, kv_len: int
) -> torch.Tensor:
    """Give one sequence's keys (or values) as [kv_len, kv_heads, size]."""
    if problem.block_table is None:
        return _rows_of(problem, cache, index, first, kv_len)
    num_blocks = -(-kv_len // problem.block_size)
    blocks = problem.block_table[index, :num_blocks].long()
    lowest, highest = int(blocks.min()), int(blocks.max())
    require(
        lowest >= 0 and highest < cache.shape[0],
        f"block_table[{index}] names blocks {lowest} to {highest} of {cache.shape[0]}",
    )
    pages = cache[blocks]
    if pages.dim() == 4:
        pages = pages.transpose(1, 2)
    return pages.reshape(num_blocks * problem.block_size, problem.num_kv_heads, -1)[:kv_len]


def _masked(problem: Problem, index: int, q_len: int, kv_len: int) -> torch.Tensor | None:
    """Give what the rows of one sequence do not see.

    Mode 2 aligns the triangle at the upper left, 3 at the lower right, 4 is a band aligned at the
    lower right.
    """
    device, mode = problem.query.device, problem.sparse_mode
    if mode == 2:
        return band(q_len, kv_len, 0, None, 0, device)
    if mode == 3:
        return band(q_len, kv_len, kv_len - q_len, None, 0, device)
    if mode == 4:
        before, after = problem.pre_tokens, problem.next_tokens
        return band(q_len, kv_len, kv_len - q_len, before, after, device)
    return None if problem.mask is None else _full_mask(problem, index, q_len, kv_len)


def _full_mask(problem: Problem, index: int, q_len: int, kv_len: int) -> torch.Tensor:
    """Cut one sequence's part out of [q, kv], [1 or batch, q, kv] or [1 or batch, 1, q, kv]."""
    mask = problem.mask
    assert mask is not None
    if mask.dim() == 4:
        require(mask.shape[1] == 1, f"atten_mask has shape {tuple(mask.shape)}")
        mask = mask.squeeze(1)
    if mask.dim() == 3:
        require(mask.shape[0] in (1, problem.batch), "atten_mask is of another batch")
        mask = mask[index if mask.shape[0] > 1 else 0]
    require(
        mask.dim() == 2 and mask.shape[0] >= q_len and mask.shape[1] >= kv_len,
        f"atten_mask has shape {tuple(mask.shape)} for {q_len} rows and {kv_len} keys",
    )
    return mask[:q_len, :kv_len].bool()


def write_back(problem: Problem, out: torch.Tensor, seq: OneSequence, result: torch.Tensor) -> None:
    """Put one sequence's result, [q_len, heads, size], where its query was."""
    if problem.layout == "TND":
        out[seq.first : seq.first + seq.q_len] = result
    elif problem.layout == "BNSD":
        out[seq.index, :, : seq.q_len] = result.transpose(0, 1)
    else:
        out[seq.index, : seq.q_len] = result.reshape(seq.q_len, *out.shape[2:])
