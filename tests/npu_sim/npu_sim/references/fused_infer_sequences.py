"""What FusedInferAttentionScore attends to: one sequence after another, out of any layout."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from npu_sim.references.attention import band
from npu_sim.references.checks import fail, require
from npu_sim.references.fused_infer_problem import LATENT_SIZE, MAX_LATENT_ROWS, Problem


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
        query = _rows_of(problem, problem.query, problem.num_heads, index, first, q_len)
        if problem.query_rope is not None and problem.key_rope is not None:
            latent = query.shape[-1] == LATENT_SIZE
            require(
                not latent or q_len <= MAX_LATENT_ROWS,
                f"sequence {index} has {q_len} rows; absorbed MLA takes up to {MAX_LATENT_ROWS}",
            )
            rope = _rows_of(problem, problem.query_rope, problem.num_heads, index, first, q_len)
            query = torch.cat((query, rope), -1)
            rope = _keys_of(problem, problem.key_rope, index, kv_first, kv_len)
            key = torch.cat((key, rope), -1)
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
    problem: Problem, tensor: torch.Tensor, heads: int, index: int, first: int, length: int
) -> torch.Tensor:
    """Give one sequence's rows as [length, heads, size], a view wherever strides allow it."""
    if problem.layout == "TND":
        return tensor[first : first + length]
    rows = tensor[index]
    if problem.layout == "BNSD":
        return rows[:, :length].transpose(0, 1)
    if problem.layout == "BSH":
        rows = rows.unflatten(-1, (heads, -1))
    return rows[:length]


def _keys_of(
    problem: Problem, cache: torch.Tensor, index: int, first: int, kv_len: int
) -> torch.Tensor:
    """Give one sequence's keys (or values) as [kv_len, kv_heads, size]."""
    if problem.block_table is None:
        return _rows_of(problem, cache, problem.num_kv_heads, index, first, kv_len)
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
