"""Sample every row of trees of drafts, and go down each tree as far as a child holds the sample."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import element, find_request, kernel
from .seeded import limit_of, sample_chunks, sampled_rows

# What no row has for the row of its parent.
NO_ROW = tl.constexpr(-1)


@triton.jit
def depth_of(
    parents,  # [num_nodes] of one request, int32
    row,
):
    """Return how deep a row is below the root."""
    depth = 0
    while row > 0:
        # Nodes have rows one above their numbers. A wrong parent must not keep this going.
        row = tl.minimum(tl.load(parents + row - 1) + 1, row - 1)
        depth += 1
    return depth


@kernel
def scan_tree(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    cu_num_draft_tokens,  # [num_reqs]
    parents,  # [num_drafts]
    temperature,  # [num_reqs]
    seeds,  # [num_reqs] int64
    positions,  # [num_reqs] int64
    threshold,  # [num_rows] or None
    chunk_peak,  # [num_rows, num_chunks], written, see sample_chunks
    chunk_best,  # [num_rows, num_chunks], written
    chunk_token,  # [num_rows, num_chunks], written
    num_chunks,
    chunks_per_program,
    CHUNK: tl.constexpr,
):
    """Sample some chunks of one row. Grid: requests, rows of each, splits."""
    request, row, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    if row <= num_drafts:
        index = start + request + row
        t = tl.load(temperature + request)
        first = split * chunks_per_program
        sample_chunks(
            logits + index.to(tl.int64) * row_stride,
            vocab_size,
            t,
            limit_of(threshold, index, t),
            tl.load(seeds + request),
            tl.load(positions + request) + depth_of(parents + start, row),
            first,
            tl.minimum(first + chunks_per_program, num_chunks),
            chunk_peak + index * num_chunks,
            chunk_best + index * num_chunks,
            chunk_token + index * num_chunks,
            CHUNK,
        )


@kernel
def finalize_tree(
    chunk_peak,  # [num_rows, num_chunks]
    chunk_best,  # [num_rows, num_chunks]
    chunk_token,  # [num_rows, num_chunks]
    num_chunks,
    temperature,  # [num_reqs]
    draft_token_ids,  # [num_drafts]
    cu_num_draft_tokens,  # [num_reqs]
    parents,  # [num_drafts]
    output_token_ids,  # [num_reqs, max_draft_len + 1], written
    num_output_tokens,  # [num_reqs], written
    output_rows,  # [num_reqs, max_draft_len + 1], written
    max_draft_len,
    POSITIONS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Join the chunks of each row, and walk one request's tree. Grid: requests."""
    request = tl.program_id(0)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    places = tl.arange(0, POSITIONS)
    is_node = places < num_drafts
    sampled = sampled_rows(
        chunk_peak,
        chunk_best,
        chunk_token,
        start + request + places,
        places <= num_drafts,
        num_chunks,
        tl.load(temperature + request),
        CHUNKS,
    )
    drafts = tl.load(draft_token_ids + start + places, mask=is_node, other=-1)
    above = tl.load(parents + start + places, mask=is_node, other=0) + 1
    above = tl.where(is_node & (above <= places), above, NO_ROW)
    tokens = tl.full((POSITIONS,), -1, tl.int32)
    rows = tl.full((POSITIONS,), -1, tl.int32)
    row, count = 0, 0
    while row < POSITIONS:
        token = element(sampled, places, row)
        tokens = tl.where(places == count, token, tokens)
        rows = tl.where(places == count, row, rows)
        count += 1
        fits = (above == row) & (drafts == token)
        # Beyond all rows if no child holds the token.
        row = tl.min(tl.where(fits, places, POSITIONS), axis=0) + 1
    at = request * (max_draft_len + 1) + places
    tl.store(output_token_ids + at, tokens, mask=places <= max_draft_len)
    tl.store(output_rows + at, rows, mask=places <= max_draft_len)
    tl.store(num_output_tokens + request, count)
