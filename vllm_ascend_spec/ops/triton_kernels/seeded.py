"""Sample every row with noise of seed and position, and accept the drafts that agree."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import find_request, kernel, rate_of, read_scores
from .greedy import NO_TOKEN, accept_greedy, token_of, write_output
from .noise import BLOCK, beyond_least, least_of_blocks


@triton.jit
def distance_of(x, peak, rate):
    """Return log2 of the weight of ``x`` beside the peak's, which is 0 even if it is infinite."""
    return tl.where(x == peak, 0.0, x - peak) * rate


@triton.jit
def sample_chunk(
    x,  # [CHUNK] logits, -inf for what the filters leave out
    peak,
    rate,
    seed,
    position,
    first,
    CHUNK: tl.constexpr,
):
    """Return the most log2(weight / noise) of a chunk, and the lowest token that has it."""
    tokens = first + tl.arange(0, CHUNK)
    num_blocks: tl.constexpr = CHUNK // BLOCK
    # First what takes the most room.
    beyond = beyond_least(seed, position, first // BLOCK, num_blocks)
    blocks = first // BLOCK + tl.arange(0, num_blocks)
    least, place = least_of_blocks(seed, position, blocks)
    has_least = place[:, None] == tl.arange(0, BLOCK)[None, :]
    noise = tl.where(tl.reshape(has_least, (CHUNK,)), 0.0, beyond)
    noise += tl.reshape(tl.broadcast_to(least[:, None], (num_blocks, BLOCK)), (CHUNK,))
    reached = distance_of(x, peak, rate) - tl.log2(noise)
    reached = tl.where(x > float("-inf"), reached, float("-inf"))
    best = tl.max(reached, axis=0)
    return best, token_of(best, reached, tokens)


@triton.jit
def sample_chunks(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    temperature,
    limit,  # lowest logit that the filters keep
    seed,
    position,
    first,
    last,
    chunk_peak,  # [num_chunks] of this row, written: the largest logit
    chunk_best,  # [num_chunks], written: the most log2(weight / noise), beside the peak
    chunk_token,  # [num_chunks], written: its token; for a greedy request, the argmax
    CHUNK: tl.constexpr,
):
    """Sample chunks [first, last) of a row."""
    rate = rate_of(temperature)
    for chunk in range(first, last):
        offsets = chunk * CHUNK + tl.arange(0, CHUNK)
        x = read_scores(row, offsets, vocab_size, None)
        x = tl.where(x >= limit, x, float("-inf"))
        peak = tl.max(x, axis=0)
        best = 0.0
        if temperature > 0:
            best, token = sample_chunk(x, peak, rate, seed, position, chunk * CHUNK, CHUNK)
        else:
            token = token_of(peak, x, offsets)
        tl.store(chunk_peak + chunk, peak)
        tl.store(chunk_best + chunk, best)
        tl.store(chunk_token + chunk, token.to(tl.float32))


@triton.jit
def limit_of(
    threshold,  # [num_rows] or None
    index,
    temperature,
):
    """Return the lowest logit that a row keeps; greedy requests have no filters."""
    limit = float("-inf")
    if threshold is not None:
        limit = tl.load(threshold + index)
    return tl.where(temperature > 0, limit, float("-inf"))


@triton.jit
def sampled_rows(
    chunk_peak,  # [num_rows, num_chunks], see sample_chunks
    chunk_best,  # [num_rows, num_chunks]
    chunk_token,  # [num_rows, num_chunks]
    rows,  # [POSITIONS] rows of one request
    used,  # [POSITIONS] whether the row is the request's
    num_chunks,
    temperature,
    CHUNKS: tl.constexpr,
):
    """Join the chunks of each row; return the rows' samples, int32 [POSITIONS]."""
    chunk = tl.arange(0, CHUNKS)
    at = rows[:, None] * num_chunks + chunk[None, :]
    mask = used[:, None] & (chunk < num_chunks)[None, :]
    peaks = tl.load(chunk_peak + at, mask=mask, other=float("-inf"))
    best = tl.load(chunk_best + at, mask=mask, other=float("-inf"))
    tokens = tl.load(chunk_token + at, mask=mask, other=NO_TOKEN)
    peak = tl.max(peaks, axis=1)[:, None]
    # Greedy requests have no noise: among the chunks with the peak, the lowest token.
    reached = best + distance_of(peaks, peak, rate_of(temperature))
    reached = tl.where(temperature > 0, reached, peaks)
    reached = tl.where(peaks > float("-inf"), reached, float("-inf"))
    most = tl.max(reached, axis=1)[:, None]
    sampled = tl.min(tl.where(reached == most, tokens, NO_TOKEN), axis=1)
    # A row with nothing above -inf yields token 0.
    return tl.where(tl.max(peaks, axis=1) > float("-inf"), sampled, 0.0).to(tl.int32)


@kernel
def scan_seeded(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    cu_num_draft_tokens,  # [num_reqs]
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
    """Sample some chunks of one row. Grid: requests, positions, splits."""
    request, place, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    if place <= num_drafts:
        index = start + request + place
        t = tl.load(temperature + request)
        first = split * chunks_per_program
        sample_chunks(
            logits + index.to(tl.int64) * row_stride,
            vocab_size,
            t,
            limit_of(threshold, index, t),
            tl.load(seeds + request),
            tl.load(positions + request) + place,
            first,
            tl.minimum(first + chunks_per_program, num_chunks),
            chunk_peak + index * num_chunks,
            chunk_best + index * num_chunks,
            chunk_token + index * num_chunks,
            CHUNK,
        )


@kernel
def finalize_seeded(
    chunk_peak,  # [num_rows, num_chunks]
    chunk_best,  # [num_rows, num_chunks]
    chunk_token,  # [num_rows, num_chunks]
    num_chunks,
    temperature,  # [num_reqs]
    draft_token_ids,  # [num_drafts]
    cu_num_draft_tokens,  # [num_reqs]
    output_token_ids,  # [num_reqs, max_draft_len + 1], written
    num_output_tokens,  # [num_reqs], written
    max_draft_len,
    POSITIONS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Join the chunks of each row, and accept the drafts of one request. Grid: requests."""
    request = tl.program_id(0)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    positions = tl.arange(0, POSITIONS)
    sampled = sampled_rows(
        chunk_peak,
        chunk_best,
        chunk_token,
        start + request + positions,
        positions <= num_drafts,
        num_chunks,
        tl.load(temperature + request),
        CHUNKS,
    )
    drafts = tl.load(draft_token_ids + start + positions, mask=positions < num_drafts, other=-1)
    accepted, final = accept_greedy(sampled, drafts, positions, num_drafts, POSITIONS)
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
