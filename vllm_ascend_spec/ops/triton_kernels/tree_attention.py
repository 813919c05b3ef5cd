"""Attention to paged keys, in which the rows of a request see those on their own paths alone."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import LOG2_E

# Of how many tokens at a request's end a row's bits say whether it sees them.
NUM_BITS = tl.constexpr(64)


@triton.jit
def find_rows(
    query_start_loc,  # [num_reqs + 1] int32
    num_reqs,
    block,
    ROWS: tl.constexpr,
):
    """Return the request of a block of rows, its first row, their number, and the block's place.

    A request has one block more than whole ones fit before its end in the batch, so its first block
    follows from its first row, and it may have blocks without rows (as in
    vllm/v1/attention/ops/triton_attention_helpers.py:resolve_seq_and_query_len).
    """
    low, high = 0, num_reqs
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(query_start_loc + middle) // ROWS + middle <= block:
            low = middle
        else:
            high = middle
    start = tl.load(query_start_loc + low)
    num_rows = tl.load(query_start_loc + low + 1) - start
    return low, start, num_rows, block - start // ROWS - low


@triton.jit
def count_zeros(bits):
    """Return how many of 64 bits are 0: by pairs, by fours, by eights, then all in one product."""
    x = (~bits).to(tl.uint64, bitcast=True)
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((x * 0x0101010101010101) >> 56).to(tl.int32)


@triton.jit
def capped(x, cap):
    """Return cap * tanh(x / cap)."""
    return cap - 2 * cap / (tl.exp(2 * x / cap) + 1)


@triton.jit
def finite(peak):
    """Return a peak, or 0 where no key was seen yet."""
    return tl.where(peak == float("-inf"), 0.0, peak)


@triton.jit
def above_zero(total):
    """Return a sum of weights, or 1 where no key was seen: a dummy run has rows without a text."""
    return tl.where(total == 0.0, 1.0, total)


@triton.jit
def add_keys(
    peak,  # [LANES] float32, log2 of the largest weight so far
    total,  # [LANES] float32, sum of weights by that peak
    sums,  # [LANES, HEAD_PADDED] float32, sum of weighted values
    q,  # [LANES, HEAD_PADDED]
    first,
    keys_of_head,  # the cache at a head's first element
    values_of_head,
    blocks,  # [max_blocks] int32, of the request
    seq_len,
    oldest,
    end,
    place,  # [LANES]
    position,  # [LANES]
    bits,  # [LANES] int64
    scale,
    soft_cap,
    BLOCK_SIZE: tl.constexpr,
    KEY_STRIDES: tl.constexpr,
    VALUE_STRIDES: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HAS_CAP: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Add a tile of keys and their values to the softmax."""
    dims = tl.arange(0, sums.shape[1])
    keys = first + tl.arange(0, TILE)
    # Blocks that are older than every window may be anybody's by now.
    there = (keys >= oldest) & (keys < end)
    block = tl.load(blocks + keys // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
    slot = keys % BLOCK_SIZE
    is_dim = dims < HEAD_SIZE
    key_at = block * KEY_STRIDES[0] + slot * KEY_STRIDES[1]
    value_at = block * VALUE_STRIDES[0] + slot * VALUE_STRIDES[1]
    k = tl.load(
        keys_of_head + key_at[None, :] + dims[:, None],
        mask=is_dim[:, None] & there[None, :],
        other=0.0,
    )
    v = tl.load(
        values_of_head + value_at[:, None] + dims[None, :],
        mask=there[:, None] & is_dim[None, :],
        other=0.0,
    )
    scores = tl.dot(q, k.to(q.dtype)) * scale
    if HAS_CAP:
        scores = capped(scores, soft_cap)
    scores *= LOG2_E
    if MASKED:
        before_end = seq_len - 1 - keys
        bit = bits[:, None] >> tl.minimum(before_end, NUM_BITS - 1)[None, :].to(tl.int64)
        is_seen = (before_end >= NUM_BITS)[None, :] | ((bit & 1) == 1)
        is_seen &= keys[None, :] <= place[:, None]
        if WINDOW:
            is_seen &= position[:, None] - keys[None, :] < WINDOW
        scores = tl.where(is_seen, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, axis=1))
    base = finite(new_peak)
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(peak - base)
    sums = sums * shrink[:, None] + tl.dot(weights.to(q.dtype), v.to(q.dtype))
    return new_peak, total * shrink + tl.sum(weights, axis=1), sums


@triton.jit
def leave_split(
    split_peaks,  # [num_tokens, num_heads, SPLITS] float32, written
    split_totals,  # [num_tokens, num_heads, SPLITS] float32, written
    split_sums,  # [num_tokens, num_heads, SPLITS, HEAD_PADDED] float32, written
    at,  # [LANES] int64
    is_row,  # [LANES]
    peak,  # [LANES] float32
    total,  # [LANES] float32
    sums,  # [LANES, HEAD_PADDED] float32
):
    """Write the sums of one split where :func:`join_splits` reads them."""
    size: tl.constexpr = sums.shape[1]
    tl.store(split_peaks + at, peak, mask=is_row)
    tl.store(split_totals + at, total, mask=is_row)
    sums_at = at[:, None] * size + tl.arange(0, size)[None, :]
    tl.store(split_sums + sums_at, sums, mask=is_row[:, None])


@triton.jit(do_not_specialize=["num_reqs"])
def attend_along_paths(
    query,  # [num_tokens, num_heads, head_size]
    key_cache,  # [num_blocks, block_size, num_kv_heads, head_size]
    value_cache,  # [num_blocks, block_size, num_kv_heads, head_size]
    output,  # [num_tokens, num_heads, head_size], written
    seen,  # [num_tokens] int64
    query_start_loc,  # [num_reqs + 1] int32
    seq_lens,  # [num_reqs] int32
    block_table,  # [num_reqs, max_blocks] int32
    sinks,  # [num_heads] or None
    split_peaks,  # [num_tokens, num_heads, SPLITS] float32, written; None if there is one split
    split_totals,  # [num_tokens, num_heads, SPLITS] float32, written, or None
    split_sums,  # [num_tokens, num_heads, SPLITS, HEAD_PADDED] float32, written, or None
    num_reqs,
    scale,
    soft_cap,
    QUERY_STRIDES: tl.constexpr,
    OUTPUT_STRIDES: tl.constexpr,
    KEY_STRIDES: tl.constexpr,
    VALUE_STRIDES: tl.constexpr,
    TABLE_STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    HAS_CAP: tl.constexpr,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Attend with some rows of one request, all query heads of a key head in one program.

    Several splits of the keys leave their sums to :func:`join_splits`.

    Grid: blocks of rows, see :func:`find_rows`; key heads; splits.
    """
    request, start, num_rows, block = find_rows(query_start_loc, num_reqs, tl.program_id(0), ROWS)
    if block * ROWS >= num_rows:
        return
    kv_head, split = tl.program_id(1), tl.program_id(2)
    seq_len = tl.load(seq_lens + request)
    lane = tl.arange(0, LANES)
    dims = tl.arange(0, HEAD_PADDED)
    row = block * ROWS + lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    is_row = (lane < ROWS * GROUP) & (row < num_rows)
    is_element = is_row[:, None] & (dims < HEAD_SIZE)[None, :]
    index = (start + row).to(tl.int64)
    query_at = index * QUERY_STRIDES[0] + head * QUERY_STRIDES[1]
    q = tl.load(query + query_at[:, None] + dims[None, :], mask=is_element, other=0.0)
    bits = tl.load(seen + index, mask=is_row, other=-1)
    # Of all lanes, so that those without a row have a finite sum.
    place = seq_len - num_rows + tl.minimum(row, num_rows - 1)
    position = place
    peak = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    sums = tl.zeros((LANES, HEAD_PADDED), tl.float32)
    if sinks is not None:
        sink = tl.load(sinks + head, mask=is_row, other=0.0).to(tl.float32) * LOG2_E
        peak = tl.where(split == 0, sink, peak)
        total += tl.where(split == 0, 1.0, 0.0)
    # All rows see all keys before this one.
    masked = tl.minimum(seq_len - num_rows + block * ROWS + 1, seq_len - NUM_BITS)
    masked = tl.maximum(masked, 0) // TILE * TILE
    oldest, first = 0, 0
    if WINDOW:
        # Tokens that a row does not see lie beside its path: they take up no position.
        position -= count_zeros(bits)
        oldest = tl.maximum(tl.min(position, axis=0) - WINDOW + 1, 0)
        first = oldest // TILE * TILE
        masked = first
    end = tl.max(place, axis=0) + 1
    keys_of_head = key_cache + kv_head * KEY_STRIDES[2]
    values_of_head = value_cache + kv_head * VALUE_STRIDES[2]
    blocks = block_table + request * TABLE_STRIDE
    own_size = tl.cdiv(tl.cdiv(end - first, TILE), SPLITS) * TILE
    own = first + split * own_size
    own_end = tl.minimum(own + own_size, end)
    for part in tl.static_range(2):
        start_key, end_key = own, tl.minimum(masked, own_end)
        if part == 1:
            start_key, end_key = tl.maximum(masked, own), own_end
        for tile in range(start_key, end_key, TILE):
            peak, total, sums = add_keys(
                peak,
                total,
                sums,
                q,
                tile,
                keys_of_head,
                values_of_head,
                blocks,
                seq_len,
                oldest,
                end,
                place,
                position,
                bits,
                scale,
                soft_cap,
                BLOCK_SIZE,
                KEY_STRIDES,
                VALUE_STRIDES,
                HEAD_SIZE,
                HAS_CAP,
                WINDOW,
                TILE,
                part == 1,
            )
    if SPLITS > 1:
        at = (index * tl.num_programs(1) * GROUP + head) * SPLITS + split
        leave_split(split_peaks, split_totals, split_sums, at, is_row, peak, total, sums)
    else:
        output_at = index * OUTPUT_STRIDES[0] + head * OUTPUT_STRIDES[1]
        found = (sums / above_zero(total)[:, None]).to(output.dtype.element_ty)
        tl.store(output + output_at[:, None] + dims[None, :], found, mask=is_element)


@triton.jit(do_not_specialize=["num_reqs"])
def join_splits(
    split_peaks,  # [num_tokens, num_heads, SPLITS] float32
    split_totals,  # [num_tokens, num_heads, SPLITS] float32
    split_sums,  # [num_tokens, num_heads, SPLITS, HEAD_PADDED] float32
    output,  # [num_tokens, num_heads, head_size], written
    query_start_loc,  # [num_reqs + 1] int32
    num_reqs,
    OUTPUT_STRIDES: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Join the splits of a row of one head, some of them without keys. Grid: tokens, heads."""
    token, head = tl.program_id(0), tl.program_id(1)
    if token >= tl.load(query_start_loc + num_reqs):
        return
    dims = tl.arange(0, HEAD_PADDED)
    at = (token.to(tl.int64) * tl.num_programs(1) + head) * SPLITS + tl.arange(0, SPLITS)
    peaks = tl.load(split_peaks + at)
    weights = tl.exp2(peaks - finite(tl.max(peaks, axis=0)))
    total = tl.sum(tl.load(split_totals + at) * weights, axis=0)
    sums = tl.load(split_sums + at[:, None] * HEAD_PADDED + dims[None, :])
    found = tl.sum(sums * weights[:, None], axis=0) / above_zero(total)
    output_at = token.to(tl.int64) * OUTPUT_STRIDES[0] + head * OUTPUT_STRIDES[1]
    is_dim = dims < HEAD_SIZE
    tl.store(output + output_at + dims, found.to(output.dtype.element_ty), mask=is_dim)
