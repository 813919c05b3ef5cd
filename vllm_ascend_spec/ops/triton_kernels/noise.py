"""The noise of ``verify_seeded``, as ``ops/verify_seeded/noise.py`` defines it."""

from __future__ import annotations

import triton
import triton.language as tl

# Tokens in a block, and calls of the generator for them.
BLOCK = tl.constexpr(128)
CALLS = tl.constexpr(32)


@triton.jit
def exponential(words):
    """Return exponential numbers of rate 1, float32, from uint32 words.

    Small numbers decide, so log(1 - u) has to be right where u is small. Devices approximate the
    logarithm only in absolute terms there: it is a series in z = u / (2 - u), up to u = 1/2.
    """
    is_small = words < 0x80000000
    # 1 - u of the words above the middle, which a float32 has without rounding it to 1.
    near = tl.where(is_small, words, 0xFFFFFFFF - words)
    u = (near.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    z = u / (2.0 - u)
    square = z * z
    series = 1.0 / 15.0
    for odd in tl.static_range(13, 0, -2):
        series = series * square + 1.0 / odd
    return tl.where(is_small, 2.0 * z * series, -tl.log(u))


@triton.jit
def least_of_blocks(
    seed,
    position,
    blocks,  # [n] int32
):
    """Return the least number of each block, float32 [n], and which of its tokens has it."""
    zeros = blocks * 0
    low, high = zeros + position.to(tl.int32), zeros + (position >> 32).to(tl.int32)
    first, second, _, _ = tl.philox(seed, zeros + CALLS, blocks, low, high)
    return exponential(first) * (1.0 / BLOCK), (second % BLOCK).to(tl.int32)


@triton.jit
def beyond_least(
    seed,
    position,
    tokens,  # [n] int32
):
    """Return how much the number of each token exceeds the least one of its block."""
    zeros = tokens * 0
    low, high = zeros + position.to(tl.int32), zeros + (position >> 32).to(tl.int32)
    place = tokens % BLOCK
    first, second, third, fourth = tl.philox(seed, place % CALLS, tokens // BLOCK, low, high)
    turn = place // CALLS
    words = tl.where(turn == 0, first, tl.where(turn == 1, second, third))
    return exponential(tl.where(turn == 3, fourth, words))
