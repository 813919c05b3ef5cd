"""Finish sampled requests: accept drafts, draw the token after them, write both."""

from __future__ import annotations

import triton
import triton.language as tl

from .accept import accept_block_of_one_hot, accept_block_of_samples, accept_by_token
from .arith import element, find_request, kernel, rate_of, read_uniform, read_uniforms
from .greedy import accept_greedy, best_of_rows, write_output
from .residual import draw_from_chunks, draw_from_row
from .sums import row_probabilities


@triton.jit
def without_nan_drafts(
    draft_prob,  # [num_rows]
    drafts,  # [POSITIONS]
    positions,  # [POSITIONS]
    rows,  # [POSITIONS]
    num_drafts,
):
    """Return q of each draft, and the drafts; those whose q is NaN are replaced by -1."""
    q = tl.load(draft_prob + rows, mask=positions < num_drafts, other=1.0)
    drafts = tl.where(q == q, drafts, -1)
    return tl.where(q > 0, q, 0.0), drafts


@triton.jit
def accept_drafts(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    draft_probs,  # [num_drafts, vocab_size] or None
    accept_uniform,  # [num_drafts, 2] int32, words of float64
    start,
    request,
    num_drafts,
    rate,
    drafts,  # [POSITIONS]
    q,  # [POSITIONS], of each draft
    positions,  # [POSITIONS]
    peak,  # [POSITIONS]
    limit,  # [POSITIONS]
    total,  # [POSITIONS]
    p,  # [POSITIONS], of each draft
    rest,  # [POSITIONS], 1 - p
    BLOCK_RULE: tl.constexpr,
    POSITIONS: tl.constexpr,
    CHUNKS: tl.constexpr,
    SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return how many drafts are accepted, and the weight of p in the residual after them."""
    weight = 1.0
    if BLOCK_RULE:
        # A draft of -1 ends the block, and so does the bonus row.
        length = tl.min(tl.where(drafts < 0, positions, POSITIONS), axis=0)
        mask = (positions >= 1) & (positions <= num_drafts)
        before = read_uniforms(accept_uniform, start + positions - 1, mask)
        if draft_probs is None:
            accepted = accept_block_of_one_hot(before, p, rest, positions, length, POSITIONS)
        else:
            accepted, weight = accept_block_of_samples(
                logits,
                row_stride,
                vocab_size,
                draft_probs,
                start + request,
                start,
                before,
                p,
                q,
                peak,
                total,
                limit,
                rate,
                positions,
                length,
                POSITIONS,
                CHUNKS,
                SIDE,
                STAGES,
            )
    else:
        uniform = read_uniforms(accept_uniform, start + positions, positions < num_drafts)
        accepted = accept_by_token(uniform, p, q, drafts, positions, num_drafts, POSITIONS)
    return accepted, weight


@triton.jit
def draw_last(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    draft_probs,  # [num_drafts, vocab_size] or None
    chunk_peak,  # [num_rows, num_parts]
    chunk_mass,  # [num_rows, num_parts]
    num_parts,
    start,
    request,
    accepted,
    weight,
    draft,
    rate,
    peak,
    limit,
    total,
    uniform,
    FILTERED: tl.constexpr,
    CHUNKS: tl.constexpr,
    SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Draw the token after the accepted drafts: the correction of ``draft``, or the bonus token."""
    index = start + request + accepted
    row = logits + index.to(tl.int64) * row_stride
    if FILTERED or draft_probs is not None:
        q_row = draft_probs
        if draft_probs is not None:
            q_row = draft_probs + (start + accepted).to(tl.int64) * vocab_size
        token = draw_from_row(
            row,
            q_row,
            vocab_size,
            draft,
            peak,
            limit,
            rate,
            tl.where(draft >= 0, weight, 1.0) / total,
            uniform,
            CHUNKS,
            SIDE,
            STAGES,
        )
    else:
        chunk = tl.arange(0, CHUNKS)
        mask = chunk < num_parts
        token = draw_from_chunks(
            row,
            vocab_size,
            draft,
            peak,
            rate,
            tl.load(chunk_peak + index * num_parts + chunk, mask=mask, other=float("-inf")),
            tl.load(chunk_mass + index * num_parts + chunk, mask=mask, other=0.0),
            uniform,
            CHUNKS,
            SIDE,
        )
    return token


@kernel
def finalize_sampled(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    draft_token_ids,  # [num_drafts]
    cu_num_draft_tokens,  # [num_reqs]
    temperature,  # [num_reqs]
    draft_probs,  # [num_drafts, vocab_size] or None
    accept_uniform,  # [num_drafts, 2] int32, words of float64
    sample_uniform,  # [num_reqs, 2] int32, words of float64
    draft_score,  # [num_rows]
    draft_prob,  # [num_rows], filled if there are draft_probs
    chunk_peak,  # [num_rows, num_parts]
    chunk_mass,  # [num_rows, num_parts]
    threshold,  # [num_rows], or None without filters
    num_parts,
    output_token_ids,  # [num_reqs, max_draft_len + 1], written
    num_output_tokens,  # [num_reqs], written
    max_draft_len,
    BLOCK_RULE: tl.constexpr,
    POSITIONS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNKS: tl.constexpr,
    SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Verify one request from the sums of its rows. Grid: requests."""
    request = tl.program_id(0)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    t = tl.load(temperature + request)
    positions = tl.arange(0, POSITIONS)
    rows, used = start + request + positions, positions <= num_drafts
    drafts = tl.load(draft_token_ids + start + positions, mask=positions < num_drafts, other=-1)
    if t > 0:
        rate = rate_of(t)
        peak, limit, total, p, rest = row_probabilities(
            draft_score,
            chunk_peak,
            chunk_mass,
            threshold,
            rate,
            drafts,
            rows,
            used,
            num_parts,
            POSITIONS,
            TILE,
        )
        q = tl.full((POSITIONS,), 1.0, tl.float32)
        if draft_probs is not None:
            q, drafts = without_nan_drafts(draft_prob, drafts, positions, rows, num_drafts)
        accepted, weight = accept_drafts(
            logits,
            row_stride,
            vocab_size,
            draft_probs,
            accept_uniform,
            start,
            request,
            num_drafts,
            rate,
            drafts,
            q,
            positions,
            peak,
            limit,
            total,
            p,
            rest,
            BLOCK_RULE,
            POSITIONS,
            CHUNKS,
            SIDE,
            STAGES,
        )
        final = draw_last(
            logits,
            row_stride,
            vocab_size,
            draft_probs,
            chunk_peak,
            chunk_mass,
            num_parts,
            start,
            request,
            accepted,
            weight,
            element(drafts, positions, accepted),
            rate,
            element(peak, positions, accepted),
            element(limit, positions, accepted),
            element(total, positions, accepted),
            read_uniform(sample_uniform, request),
            threshold is not None,
            CHUNKS,
            SIDE,
            STAGES,
        )
    else:
        best = best_of_rows(chunk_peak, chunk_mass, rows, used, num_parts, POSITIONS, TILE)
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
