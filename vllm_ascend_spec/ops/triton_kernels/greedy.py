"""Greedy verification: find the argmax of every chunk of every row, then of every row."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import element, find_request, kernel, read_scores

# Larger than any token. Tokens are stored as float32, which holds them exactly up to here.
NO_TOKEN = tl.constexpr(1 << 24)


@triton.jit
def token_of(peak, x, tokens):
    """Return the lowest of ``tokens`` whose logit is ``peak``."""
    return tl.min(tl.where(x == peak, tokens, NO_TOKEN), axis=0)


@triton.jit
def best_of_rows(
    chunk_peak,  # [num_rows, num_chunks] float32, largest logit of each chunk
    chunk_best,  # [num_rows, num_chunks] float32, its token
    rows,  # [POSITIONS] rows of one request
    used,  # [POSITIONS] whether the row is the request's
    num_chunks,
    POSITIONS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Return the argmax of each row, int32 [POSITIONS]; ties go to the lowest token."""
    peak = tl.full((POSITIONS,), float("-inf"), tl.float32)
    best = tl.full((POSITIONS,), NO_TOKEN, tl.float32)
    for first in range(0, num_chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        at = rows[:, None] * num_chunks + chunk[None, :]
        mask = used[:, None] & (chunk < num_chunks)[None, :]
        peaks = tl.load(chunk_peak + at, mask=mask, other=float("-inf"))
        tokens = tl.load(chunk_best + at, mask=mask, other=NO_TOKEN)
        highest = tl.maximum(peak, tl.max(peaks, axis=1))
        token = tl.min(tl.where(peaks == highest[:, None], tokens, NO_TOKEN), axis=1)
        best = tl.where(peak == highest, tl.minimum(best, token), token)
        peak = highest
    return best.to(tl.int32)


@triton.jit
def accept_greedy(best, drafts, positions, num_drafts, POSITIONS: tl.constexpr):
    """Return how many leading drafts equal the argmax of their row, and the token after them."""
    wrong = (positions >= num_drafts) | (drafts != best)
    accepted = tl.min(tl.where(wrong, positions, POSITIONS), axis=0)
    return accepted, element(best, positions, accepted)


@triton.jit
def write_output(
    output_token_ids,  # [num_reqs, max_draft_len + 1] int32
    num_output_tokens,  # [num_reqs] int32
    request,
    max_draft_len,
    drafts,  # [POSITIONS]
    positions,  # [POSITIONS]
    accepted,
    final,
):
    """Store the accepted drafts, the token after them, and -1 in the rest of the row."""
    tokens = tl.where(positions < accepted, drafts, -1)
    tokens = tl.where(positions == accepted, final, tokens)
    at = request * (max_draft_len + 1) + positions
    tl.store(output_token_ids + at, tokens, mask=positions <= max_draft_len)
    tl.store(num_output_tokens + request, accepted + 1)


@kernel
def scan_greedy(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    cu_num_draft_tokens,  # [num_reqs]
    chunk_peak,  # [num_rows, num_chunks], written
    chunk_best,  # [num_rows, num_chunks], written
    num_chunks,
    chunks_per_program,
    CHUNK: tl.constexpr,
):
    """Find the argmax of some chunks of one row. Grid: requests, positions, splits."""
    request, position, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    if position <= num_drafts:
        index = start + request + position
        row = logits + index.to(tl.int64) * row_stride
        first = split * chunks_per_program
        for chunk in range(first, tl.minimum(first + chunks_per_program, num_chunks)):
            offsets = chunk * CHUNK + tl.arange(0, CHUNK)
            x = read_scores(row, offsets, vocab_size, None)
            peak = tl.max(x, axis=0)
            best = token_of(peak, x, offsets).to(tl.float32)
            tl.store(chunk_peak + index * num_chunks + chunk, peak)
            tl.store(chunk_best + index * num_chunks + chunk, best)


@kernel
def finalize_greedy(
    chunk_peak,  # [num_rows, num_chunks]
    chunk_best,  # [num_rows, num_chunks]
    num_chunks,
    draft_token_ids,  # [num_drafts]
    cu_num_draft_tokens,  # [num_reqs]
    output_token_ids,  # [num_reqs, max_draft_len + 1], written
    num_output_tokens,  # [num_reqs], written
    max_draft_len,
    POSITIONS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Accept the drafts of one request. Grid: requests."""
    request = tl.program_id(0)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    positions = tl.arange(0, POSITIONS)
    rows = start + request + positions
    used = positions <= num_drafts
    best = best_of_rows(chunk_peak, chunk_best, rows, used, num_chunks, POSITIONS, TILE)
    drafts = tl.load(draft_token_ids + start + positions, mask=positions < num_drafts, other=-1)
    accepted, final = accept_greedy(best, drafts, positions, num_drafts, POSITIONS)
    write_output(
        output_token_ids,
        num_output_tokens,
        request,
        max_draft_len,
        drafts,
        positions,
        accepted,
        final,
    )
