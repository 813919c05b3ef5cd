"""Top-k, top-p and min-p as thresholds on a row's logits: each keeps logits at or above its own.

``first``, ``second`` and ``floor`` come from :func:`gather_tops`. A threshold above the floor, as
for the few hundred most likely tokens, is found from these alone; a lower one takes further passes
over the row. All of these leave out the row's draft, which is passed as ``draft_score``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import read_scores, weight_of
from .search import key_of, search_row, search_tops, value_of

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def kept_mass(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    left_out,
    first,  # [LANES], the largest logit of each lane
    second,  # [LANES], the second largest
    floor,
    limit,
    peak,
    rate,
    LANES: tl.constexpr,
    SHALLOW: tl.constexpr,
):
    """Return the mass, relative to ``peak``, of the logits at or above ``limit``."""
    kept = tl.zeros((LANES,), tl.float32)
    if (limit > floor) | (floor == float("-inf")):
        kept += tl.where(first >= limit, weight_of(first, peak, rate), 0.0)
        kept += tl.where(second >= limit, weight_of(second, peak, rate), 0.0)
    else:
        lane = tl.arange(0, LANES)
        for offset in tl.range(0, vocab_size, LANES, num_stages=SHALLOW):
            x = read_scores(row, offset + lane, vocab_size, left_out)
            kept += tl.where(x >= limit, weight_of(x, peak, rate), 0.0)
    return tl.sum(kept, axis=0)


@triton.jit
def min_p_limit(peak, temperature, min_p):
    """Return the lowest float x with x - peak >= T ln(min_p)."""
    distance = temperature * tl.log(min_p)
    limit = peak + distance
    # Where the sum was rounded down, the next float is the first to qualify.
    return tl.where(limit - peak >= distance, limit, value_of(key_of(limit, 0) + 1, 0))


@triton.jit
def top_k_limit(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    left_out,
    first,  # [LANES], the largest logit of each lane
    second,  # [LANES], the second largest
    floor,
    peak,
    draft_score,
    k,
    SHIFT: tl.constexpr,
    LANES: tl.constexpr,
    SHALLOW: tl.constexpr,
):
    """Return the k-th largest logit."""
    target = k.to(tl.float32)
    one = tl.full((LANES,), 1.0, tl.float32)
    above = tl.where(first > floor, one, 0.0) + tl.where(second > floor, one, 0.0)
    count = tl.sum(above, axis=0) + tl.where(draft_score > floor, 1.0, 0.0)
    bottom = key_of(floor, SHIFT)
    if count >= target:
        high = key_of(peak, SHIFT) + 1
        key = search_tops(
            first, second, one, one, draft_score, 1.0, target, bottom + 1, high, SHIFT
        )
    else:
        key = search_row(
            row,
            vocab_size,
            left_out,
            peak,
            0.0,
            draft_score,
            1.0,
            target,
            key_of(LOWEST, SHIFT),
            bottom + 1,
            False,
            SHIFT,
            LANES,
            SHALLOW,
        )
    return value_of(key, SHIFT)


@triton.jit
def top_p_limit(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    left_out,
    first,  # [LANES], the largest logit of each lane
    second,  # [LANES], the second largest
    floor,
    limit,
    peak,
    rate,
    draft_score,
    p,
    SHIFT: tl.constexpr,
    LANES: tl.constexpr,
    SHALLOW: tl.constexpr,
):
    """Return the largest logit such that it and those above have the share ``p`` of the mass.

    The mass is that of the logits at or above ``limit``, which top-k and min-p keep.
    """
    total = kept_mass(
        row,
        vocab_size,
        left_out,
        first,
        second,
        floor,
        limit,
        peak,
        rate,
        LANES,
        SHALLOW,
    )
    draft_weight = weight_of(draft_score, peak, rate)
    draft_weight = tl.where(draft_score >= limit, draft_weight, 0.0)
    total += draft_weight
    target = p * total
    first_weight = weight_of(first, peak, rate)
    first_weight = tl.where(first >= limit, first_weight, 0.0)
    second_weight = weight_of(second, peak, rate)
    second_weight = tl.where(second >= limit, second_weight, 0.0)
    above = tl.where(first > floor, first_weight, 0.0)
    above += tl.where(second > floor, second_weight, 0.0)
    mass = tl.sum(above, axis=0) + tl.where(draft_score > floor, draft_weight, 0.0)
    low = key_of(tl.maximum(limit, LOWEST), SHIFT)
    bottom = key_of(floor, SHIFT)
    if mass >= target:
        key = search_tops(
            first,
            second,
            first_weight,
            second_weight,
            draft_score,
            draft_weight,
            target,
            tl.maximum(low, bottom + 1),
            key_of(peak, SHIFT) + 1,
            SHIFT,
        )
    else:
        # All tokens lighter than this together weigh less than the mass that top-p may drop.
        negligible = 0.5 * (1 - p) * total / vocab_size
        lightest = peak + tl.log2(negligible) / rate
        key = search_row(
            row,
            vocab_size,
            left_out,
            peak,
            rate,
            draft_score,
            draft_weight,
            target,
            tl.maximum(low, key_of(tl.maximum(lightest, LOWEST), SHIFT)),
            bottom + 1,
            True,
            SHIFT,
            LANES,
            SHALLOW,
        )
    return value_of(key, SHIFT)


@triton.jit
def row_limit(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    draft,
    first,  # [LANES], the largest logit of each lane
    second,  # [LANES], the second largest
    floor,
    peak,
    temperature,
    rate,
    draft_score,
    request,
    top_k,  # [num_reqs] or None
    top_p,  # [num_reqs] or None
    min_p,  # [num_reqs] or None
    SHIFT: tl.constexpr,
    LANES: tl.constexpr,
    SHALLOW: tl.constexpr,
):
    """Return the threshold of all filters together, for a row whose peak is finite."""
    limit = float("-inf")
    if min_p is not None:
        limit = min_p_limit(peak, temperature, tl.load(min_p + request))
    if top_k is not None:
        k = tl.load(top_k + request)
        if (k > 0) & (k < vocab_size):
            kth = top_k_limit(
                row,
                vocab_size,
                draft,
                first,
                second,
                floor,
                peak,
                draft_score,
                k,
                SHIFT,
                LANES,
                SHALLOW,
            )
            limit = tl.maximum(limit, kth)
    if top_p is not None:
        p = tl.load(top_p + request)
        if p < 1:
            nucleus = top_p_limit(
                row,
                vocab_size,
                draft,
                first,
                second,
                floor,
                limit,
                peak,
                rate,
                draft_score,
                p,
                SHIFT,
                LANES,
                SHALLOW,
            )
            limit = tl.maximum(limit, nucleus)
    return limit
