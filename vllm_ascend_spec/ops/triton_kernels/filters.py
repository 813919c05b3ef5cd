"""Find every row's filter threshold and the mass that it keeps, without sorting."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import find_request, kernel, rate_of, read_draft, read_score, read_scores
from .greedy import token_of
from .scan import note_draft
from .search import gather_tops
from .thresholds import kept_mass, row_limit


@triton.jit
def best_of_row(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    LANES: tl.constexpr,
    DEEP: tl.constexpr,
):
    """Return the largest logit of a row and the lowest token that has it."""
    lane = tl.arange(0, LANES)
    best = tl.full((LANES,), float("-inf"), tl.float32)
    block = tl.zeros((LANES,), tl.int32)
    for offset in tl.range(0, vocab_size, LANES, num_stages=DEEP):
        x = read_scores(row, offset + lane, vocab_size, None)
        block = tl.where(x > best, offset, block)
        best = tl.maximum(best, x)
    peak = tl.max(best, axis=0)
    return peak, token_of(peak, best, block + lane)


@triton.jit
def filter_row(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    draft,
    draft_score,
    temperature,
    request,
    top_k,  # [num_reqs] or None
    top_p,  # [num_reqs] or None
    min_p,  # [num_reqs] or None
    SHIFT: tl.constexpr,
    LANES: tl.constexpr,
    DEEP: tl.constexpr,
    SHALLOW: tl.constexpr,
):
    """Return a row's peak, its threshold, and the mass that is kept, without the draft's."""
    rate = rate_of(temperature)
    first, second, floor = gather_tops(row, vocab_size, draft, LANES, DEEP)
    peak = tl.maximum(tl.max(first, axis=0), draft_score)
    # Nothing below an infinite peak has weight; in a row of only -inf, nothing is kept.
    limit = float("inf")
    if (peak > float("-inf")) & (peak < float("inf")):
        limit = row_limit(
            row,
            vocab_size,
            draft,
            first,
            second,
            floor,
            peak,
            temperature,
            rate,
            draft_score,
            request,
            top_k,
            top_p,
            min_p,
            SHIFT,
            LANES,
            SHALLOW,
        )
    mass = kept_mass(
        row, vocab_size, draft, first, second, floor, limit, peak, rate, LANES, SHALLOW
    )
    return peak, limit, mass


@kernel
def filter_rows(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    draft_token_ids,  # [num_drafts]
    cu_num_draft_tokens,  # [num_reqs]
    temperature,  # [num_reqs]
    top_k,  # [num_reqs] or None
    top_p,  # [num_reqs] or None
    min_p,  # [num_reqs] or None
    draft_probs,  # [num_drafts, vocab_size] or None
    draft_score,  # [num_rows], written
    draft_prob,  # [num_rows], written if there are draft_probs
    row_peak,  # [num_rows], written
    row_mass,  # [num_rows], written; for a greedy request, the argmax
    threshold,  # [num_rows], written
    SHIFT: tl.constexpr,
    LANES: tl.constexpr,
    DEEP: tl.constexpr,
    SHALLOW: tl.constexpr,
):
    """Filter and weigh one row, without its draft. Grid: requests, positions.

    One pass collects the two largest logits of each lane, which usually decide the threshold.
    """
    request, position = tl.program_id(0), tl.program_id(1)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    if position <= num_drafts:
        index = start + request + position
        row = logits + index.to(tl.int64) * row_stride
        t = tl.load(temperature + request)
        if t > 0:
            at = start + position
            draft = read_draft(draft_token_ids, at, position < num_drafts)
            score = read_score(row, draft)
            note_draft(score, draft, index, at, vocab_size, draft_probs, draft_score, draft_prob)
            peak, limit, mass = filter_row(
                row,
                vocab_size,
                draft,
                score,
                t,
                request,
                top_k,
                top_p,
                min_p,
                SHIFT,
                LANES,
                DEEP,
                SHALLOW,
            )
            tl.store(threshold + index, limit)
            tl.store(row_peak + index, peak)
            tl.store(row_mass + index, mass)
        else:
            peak, best = best_of_row(row, vocab_size, LANES, DEEP)
            tl.store(row_peak + index, peak)
            tl.store(row_mass + index, best.to(tl.float32))
