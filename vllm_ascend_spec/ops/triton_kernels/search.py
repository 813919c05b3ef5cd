"""Find the largest value such that enough of a row's mass, or enough tokens, are at or above it.

Values are searched by their keys, int32 in the same order as the floats. ``SHIFT`` drops a key's
low bits, which are the same for all half-precision logits, and so saves half of the steps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import read_scores, weight_of


@triton.jit
def key_of(x, SHIFT: tl.constexpr):
    """Return the key of a float32; -0 has the key of 0."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> SHIFT


@triton.jit
def value_of(key, SHIFT: tl.constexpr):
    """Return the lowest float32 with this key."""
    bits = key << SHIFT
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def between(low, high):
    """Return the middle of two int32, rounded down, without overflow."""
    return (low & high) + ((low ^ high) >> 1)


@triton.jit
def gather_tops(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    left_out,
    LANES: tl.constexpr,
    DEEP: tl.constexpr,
):
    """Find the two largest logits of each lane, which holds every LANES-th token.

    Returns:
        The largest and the second largest, float32 [LANES], and a floor: all of the row's values
        above the floor are among them.
    """
    first = tl.full((LANES,), float("-inf"), tl.float32)
    second = tl.full((LANES,), float("-inf"), tl.float32)
    third = tl.full((LANES,), float("-inf"), tl.float32)
    lane = tl.arange(0, LANES)
    for offset in tl.range(0, vocab_size, LANES, num_stages=DEEP):
        x = read_scores(row, offset + lane, vocab_size, left_out)
        passed = tl.minimum(first, x)
        first = tl.maximum(first, x)
        third = tl.maximum(third, tl.minimum(second, passed))
        second = tl.maximum(second, passed)
    return first, second, tl.max(third, axis=0)


@triton.jit
def search_tops(
    first,  # [LANES]
    second,  # [LANES]
    first_weight,  # [LANES]
    second_weight,  # [LANES]
    draft_score,
    draft_weight,
    target,
    low,
    high,
    SHIFT: tl.constexpr,
):
    """Return the largest key such that values at or above it weigh ``target`` or more.

    This must hold for the key ``low`` and must not hold for ``high``.
    """
    while low + 1 < high:
        middle = between(low, high)
        pivot = value_of(middle, SHIFT)
        weights = tl.where(first >= pivot, first_weight, 0.0)
        weights += tl.where(second >= pivot, second_weight, 0.0)
        mass = tl.sum(weights, axis=0) + tl.where(draft_score >= pivot, draft_weight, 0.0)
        low = tl.where(mass >= target, middle, low)
        high = tl.where(mass >= target, high, middle)
    return low


@triton.jit
def narrow(low, high, pivot, masses, draft_score, draft_weight, target, SHIFT: tl.constexpr):
    """Move one bound to ``pivot``, depending on the weight above it: ``masses`` and the draft."""
    mass = tl.sum(masses, axis=0)
    mass += tl.where(draft_score >= value_of(pivot, SHIFT), draft_weight, 0.0)
    low = tl.where(mass >= target, tl.maximum(low, pivot), low)
    return low, tl.where(mass >= target, high, tl.minimum(high, pivot))


@triton.jit
def search_row(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    left_out,
    peak,
    rate,
    draft_score,
    draft_weight,
    target,
    low,
    high,
    BY_MASS: tl.constexpr,
    SHIFT: tl.constexpr,
    LANES: tl.constexpr,
    SHALLOW: tl.constexpr,
):
    """Do what :func:`search_tops` does, for a row whose largest logits do not reach far enough.

    Each pass over the row weighs the values above three pivots and finds the lowest and highest
    value between the bounds, so that the search ends once they enclose a single value.
    """
    lane = tl.arange(0, LANES)
    while low + 1 < high:
        middle = between(low, high)
        quarter, three_quarters = between(low, middle), between(middle, high)
        bottom, top = value_of(low, SHIFT), value_of(high, SHIFT)
        mass_1 = tl.zeros((LANES,), tl.float32)
        mass_2 = tl.zeros((LANES,), tl.float32)
        mass_3 = tl.zeros((LANES,), tl.float32)
        inside = (draft_score >= bottom) & (draft_score < top)
        lowest = tl.full((LANES,), float("inf"), tl.float32)
        lowest = tl.where(inside, draft_score, lowest)
        highest = tl.full((LANES,), float("-inf"), tl.float32)
        highest = tl.where(inside, draft_score, highest)
        for offset in tl.range(0, vocab_size, LANES, num_stages=SHALLOW):
            x = read_scores(row, offset + lane, vocab_size, left_out)
            weight = tl.full((LANES,), 1.0, tl.float32)
            if BY_MASS:
                weight = weight_of(x, peak, rate)
            mass_1 += tl.where(x >= value_of(quarter, SHIFT), weight, 0.0)
            mass_2 += tl.where(x >= value_of(middle, SHIFT), weight, 0.0)
            mass_3 += tl.where(x >= value_of(three_quarters, SHIFT), weight, 0.0)
            lowest = tl.where(x >= bottom, tl.minimum(lowest, x), lowest)
            highest = tl.where(x < top, tl.maximum(highest, x), highest)
        low_1, high_1 = narrow(low, high, quarter, mass_1, draft_score, draft_weight, target, SHIFT)
        low_2, high_2 = narrow(
            low_1, high_1, middle, mass_2, draft_score, draft_weight, target, SHIFT
        )
        low, high = narrow(
            low_2, high_2, three_quarters, mass_3, draft_score, draft_weight, target, SHIFT
        )
        low = tl.maximum(low, key_of(tl.min(lowest, axis=0), SHIFT))
        high = tl.minimum(high, key_of(tl.max(highest, axis=0), SHIFT) + 1)
    return low
