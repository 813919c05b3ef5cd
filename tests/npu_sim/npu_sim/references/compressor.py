"""DeepSeek V4's compressed keys: where each goes, and how it is made of several tokens.

Documented in vllm-ascend's `csrc/attention/compressor/README.md`, and by its own tests on a device
(`tests/e2e/nightly/single_node/ops/singlecard_ops/test_compressor_metadata.py`). Of the layouts,
tokens one after the other with a paged state (cache_mode 1) have a reference. float32 is accepted
although a real NPU takes float16 and bfloat16 only, and so are other widths than the documented.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
from npu_sim.references.rope import rotate_pairs

# Places of compressed keys: one number, or a block and a place in it.
FLAT, BLOCK_OFFSET = 1, 2
INTERLEAVED = 2
PAGED = 1
RATIOS = (2, 4, 8, 16, 32, 64, 128)

Metadata = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _empty_metadata(
    rope_cos: torch.Tensor, slot_mapping_format: int, num_compressed_tokens: int
) -> Metadata:
    rows = num_compressed_tokens
    cos = rope_cos.new_empty((rows, 1, 1, rope_cos.shape[-1]))
    shape = (rows, 2) if slot_mapping_format == BLOCK_OFFSET else (rows,)
    slots = torch.empty(shape, dtype=torch.int32, device=rope_cos.device)
    return cos, torch.empty_like(cos), slots


def _metadata_meta(  # noqa: PLR0917 - the schema
    rope_cos: torch.Tensor,
    rope_sin: torch.Tensor,
    cu_seqlens: torch.Tensor,
    start_pos: torch.Tensor,
    kv_block_table: torch.Tensor,
    kv_block_size: int,
    slot_mapping_format: int,
    compress_ratio: int,
    num_compressed_tokens: int,
    num_reqs_actual: int,
) -> Metadata:
    return _empty_metadata(rope_cos, slot_mapping_format, num_compressed_tokens)


@reference("_C_ascend::compressor_metadata", meta=_metadata_meta)
def compressor_metadata(  # noqa: PLR0917 - the schema
    rope_cos: torch.Tensor,  # [positions, rope]
    rope_sin: torch.Tensor,  # rope_cos's shape and dtype
    cu_seqlens: torch.Tensor,  # [batch + 1], int32
    start_pos: torch.Tensor,  # [batch], int32
    kv_block_table: torch.Tensor,  # [batch, max_blocks], int32
    kv_block_size: int,
    slot_mapping_format: int,
    compress_ratio: int,
    num_compressed_tokens: int,
    num_reqs_actual: int,
) -> Metadata:
    """Give cosines, sines and places of the keys that the new tokens complete.

    Request by request; a key has the position of its first token. Rows without a key follow, with
    cosine 1, sine 0 and no place: -1 (format 1), or block -1 and the last place of it (format 2).

    Returns:
        [rows, 1, 1, rope] twice and int32 [rows] or [rows, 2].
    """
    made = _empty_metadata(rope_cos, slot_mapping_format, num_compressed_tokens)
    return compressor_metadata_out(
        rope_cos,
        rope_sin,
        cu_seqlens,
        start_pos,
        kv_block_table,
        kv_block_size,
        slot_mapping_format,
        compress_ratio,
        num_reqs_actual,
        *made,
    )


def _out_meta(*given: torch.Tensor) -> Metadata:
    cos, sin, slots = given[-3:]
    return cos, sin, slots


@reference("_C_ascend::compressor_metadata_out", meta=_out_meta)
def compressor_metadata_out(  # noqa: PLR0917 - the schema
    rope_cos: torch.Tensor,  # [positions, rope]
    rope_sin: torch.Tensor,  # rope_cos's shape and dtype
    cu_seqlens: torch.Tensor,  # [batch + 1], int32
    start_pos: torch.Tensor,  # [batch], int32
    kv_block_table: torch.Tensor,  # [batch, max_blocks], int32
    kv_block_size: int,
    slot_mapping_format: int,
    compress_ratio: int,
    num_reqs_actual: int,
    compress_cos: torch.Tensor,  # [rows, 1, 1, rope], written
    compress_sin: torch.Tensor,  # likewise
    slot_mapping: torch.Tensor,  # [rows], or [rows, 2], int32, written
) -> Metadata:
    """Do the same, into tensors that are given."""
    require_choice("slot_mapping_format", slot_mapping_format, (FLAT, BLOCK_OFFSET))
    require_choice("compress_ratio", compress_ratio, RATIOS)
    require_same_dtype(
        rope_cos=rope_cos, rope_sin=rope_sin, compress_cos=compress_cos, compress_sin=compress_sin
    )
    for name, ints in (
        ("cu_seqlens", cu_seqlens),
        ("start_pos", start_pos),
        ("kv_block_table", kv_block_table),
        ("slot_mapping", slot_mapping),
    ):
        require_dtype(name, ints, (torch.int32,))
    rows = slot_mapping.shape[0]
    require_shape("compress_cos", compress_cos, rows, 1, 1, rope_cos.shape[-1])
    require(num_reqs_actual <= start_pos.numel(), f"{num_reqs_actual} requests; too many")
    compress_cos.fill_(1)
    compress_sin.fill_(0)
    slot_mapping.fill_(-1)
    if slot_mapping_format == BLOCK_OFFSET:
        slot_mapping[:, 1] = kv_block_size - 1
    row = 0
    ends, starts = cu_seqlens.tolist(), start_pos.tolist()
    for request in range(num_reqs_actual):
        start, count = starts[request], ends[request + 1] - ends[request]
        if start < 0 or count <= 0:
            continue
        for key in range(start // compress_ratio, (start + count) // compress_ratio):
            if row == rows:
                return compress_cos, compress_sin, slot_mapping
            block, place = divmod(key, kv_block_size)
            position = key * compress_ratio
            is_inside = block < kv_block_table.shape[1] and position < rope_cos.shape[0]
            number = int(kv_block_table[request, block]) if is_inside else -1
            if number >= 0:
                compress_cos[row, 0, 0] = rope_cos[position]
                compress_sin[row, 0, 0] = rope_sin[position]
                found = (number, place)
                flat = number * kv_block_size + place
                slot_mapping[row] = torch.tensor(
                    found if slot_mapping_format == BLOCK_OFFSET else flat
                ).to(slot_mapping)
            row += 1
    return compress_cos, compress_sin, slot_mapping


@dataclass(frozen=True)
class Request:
    """One request's new tokens.

    Attributes:
        rows: their rows.
        start: the position of the first.
        table: its blocks of the state, int64 [max_blocks].
    """

    rows: slice
    start: int
    table: torch.Tensor

    @property
    def end(self) -> int:
        """The position behind the last."""
        return self.start + self.rows.stop - self.rows.start


def _requests(
    x: torch.Tensor,
    cu_seqlens: torch.Tensor | None,
    start_pos: torch.Tensor | None,
    state_block_table: torch.Tensor | None,
) -> Iterator[Request]:
    if cu_seqlens is None or start_pos is None or state_block_table is None:
        require(False, "cu_seqlens, start_pos and state_block_table are needed")
        return
    for name, ints in (
        ("cu_seqlens", cu_seqlens),
        ("start_pos", start_pos),
        ("state_block_table", state_block_table),
    ):
        require_dtype(name, ints, (torch.int32,))
    ends, starts = cu_seqlens.tolist(), start_pos.tolist()
    require(len(ends) == len(starts) + 1, f"cu_seqlens has {len(ends)} for {len(starts)} requests")
    require(ends[0] == 0 and ends[-1] <= x.shape[0], f"cu_seqlens is {ends}; x has {x.shape[0]}")
    for number, start in enumerate(starts):
        rows = slice(ends[number], ends[number + 1])
        require(rows.start <= rows.stop and start >= 0, f"request {number}: {rows} from {start}")
        if rows.start < rows.stop:
            yield Request(rows, start, state_block_table[number].long())


def _keys_meta(
    x: torch.Tensor, wkv: torch.Tensor, *given: torch.Tensor, **_: object
) -> torch.Tensor:
    norm_weight, rope_sin = given[3], given[4]
    return x.new_empty((rope_sin.shape[0], norm_weight.shape[0]))


@reference("_C_ascend::compressor", meta=_keys_meta)
def compressor(  # noqa: PLR0917 - the schema
    x: torch.Tensor,  # [tokens, hidden]
    wkv: torch.Tensor,  # [coff * size, hidden], x's dtype
    wgate: torch.Tensor,  # wkv's shape and dtype
    state_cache: torch.Tensor,  # [blocks, block_size, 2 * coff * size], float32, written
    ape: torch.Tensor,  # [cmp_ratio, coff * size], float32
    norm_weight: torch.Tensor,  # [size], float32
    rope_sin: torch.Tensor,  # [min(tokens, tokens // cmp_ratio + batch), rope], float32
    rope_cos: torch.Tensor,  # likewise
    state_block_table: torch.Tensor | None,  # [batch, max_blocks], int32
    cu_seqlens: torch.Tensor | None,  # [batch + 1], int32
    seqused: torch.Tensor | None,
    start_pos: torch.Tensor | None,  # [batch], int32
    rope_head_dim: int,
    cmp_ratio: int,
    coff: int,
    norm_eps: float,
    rotary_mode: int,
    cache_mode: int,
) -> torch.Tensor:
    """Keep what the new tokens give to a key, and make the keys that they complete.

    A key is a sum over `cmp_ratio` tokens with a softmax of its own in each dimension, normed and
    rotated. With coff 2 the first half of what a token gives is for the next key and the second for
    its own, so that a key has twice as many tokens; the very first has no earlier ones. State of
    block 0 is not written.

    Returns:
        The keys of all requests [min(tokens, tokens // cmp_ratio + batch), size] in x's dtype, and
        zeros behind them (undefined on a real NPU).
    """
    refuse(seqused=seqused)
    require_choice("cmp_ratio", cmp_ratio, RATIOS)
    require_choice("coff", coff, (1, 2))
    require_choice("rotary_mode", rotary_mode, (INTERLEAVED,))
    require_choice("cache_mode", cache_mode, (PAGED,))
    require_dtype("x", x, FLOATS)
    require_same_dtype(x=x, wkv=wkv, wgate=wgate)
    for name, tensor in (
        ("state_cache", state_cache),
        ("ape", ape),
        ("norm_weight", norm_weight),
        ("rope_sin", rope_sin),
        ("rope_cos", rope_cos),
    ):
        require_dtype(name, tensor, (torch.float32,))
    size = norm_weight.shape[0]
    width = coff * size
    require_shape("x", x, None, None)
    require_shape("wkv", wkv, width, x.shape[1])
    require_shape("wgate", wgate, width, x.shape[1])
    require_shape("ape", ape, cmp_ratio, width)
    require_shape("state_cache", state_cache, None, None, 2 * width)
    requests = list(_requests(x, cu_seqlens, start_pos, state_block_table))
    assert start_pos is not None
    rows = min(x.shape[0], x.shape[0] // cmp_ratio + start_pos.numel())
    require_shape("rope_cos", rope_cos, rows, rope_head_dim)
    require_shape("rope_sin", rope_sin, rows, rope_head_dim)
    tokens = x.float()
    made = torch.cat((tokens @ wkv.float().T, tokens @ wgate.float().T), -1)
    keys = x.new_zeros((rows, size), dtype=torch.float32)
    row = 0
    for one in requests:
        positions = torch.arange(one.start, one.end, device=x.device)
        made[one.rows, width:] += ape[positions % cmp_ratio]
        _keep(state_cache, made[one.rows], one.table, positions)
        first = max(one.start // cmp_ratio - (coff - 1), 0) * cmp_ratio
        before = _kept(state_cache, one.table, torch.arange(first, one.start, device=x.device))
        parts = torch.cat((before, made[one.rows]))
        for key in range(one.start // cmp_ratio, one.end // cmp_ratio):
            end = (key + 1) * cmp_ratio - first
            keys[row] = _one_key(parts[max(end - coff * cmp_ratio, 0) : end], cmp_ratio, size, coff)
            row += 1
    keys = keys * torch.rsqrt(keys.square().mean(-1, keepdim=True) + norm_eps) * norm_weight
    kept = size - rope_head_dim
    keys[:, kept:] = rotate_pairs(keys[:, kept:], rope_cos, rope_sin, "interleave")
    keys[row:] = 0
    return keys.to(x.dtype)


def _one_key(
    parts: torch.Tensor,  # [tokens, 2 * coff * size], float32
    ratio: int,
    size: int,
    coff: int,
) -> torch.Tensor:
    """Give the weighted sum of what the tokens give to a key, [size]."""
    values, scores = parts.chunk(2, -1)
    if coff == 2:  # those before give their first half, its own tokens their second
        own = slice(len(parts) - ratio, None)
        earlier = slice(0, len(parts) - ratio)
        values = torch.cat((values[earlier, :size], values[own, size:]))
        scores = torch.cat((scores[earlier, :size], scores[own, size:]))
    return (scores.softmax(0) * values).sum(0)


def _keep(
    cache: torch.Tensor,  # [blocks, block_size, width]
    parts: torch.Tensor,  # [tokens, width]
    table: torch.Tensor,  # [max_blocks], int64
    positions: torch.Tensor,  # [tokens], int64
) -> None:
    """Write what tokens give into their blocks, but for block 0."""
    blocks = table[positions // cache.shape[1]]
    kept = blocks != 0
    cache[blocks[kept], positions[kept] % cache.shape[1]] = parts[kept]


def _kept(
    cache: torch.Tensor,  # [blocks, block_size, width]
    table: torch.Tensor,  # [max_blocks], int64
    positions: torch.Tensor,  # [tokens], int64
) -> torch.Tensor:
    """Read what earlier tokens gave, [tokens, width]."""
    return cache[table[positions // cache.shape[1]], positions % cache.shape[1]]
