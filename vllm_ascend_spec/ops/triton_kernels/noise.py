"""The noise of ``verify_seeded``, as ``ops/verify_seeded/noise.py`` defines it."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends import backends

# Tokens in a block, and calls of the generator for them; the call after them is for its least
# number.
BLOCK = tl.constexpr(128)
CALLS = tl.constexpr(32)
WORDS = tl.constexpr(4)
# triton-ascend 3.2 takes the high half of a product for that of numbers with a sign.
WIDE_PRODUCTS = tl.constexpr("ascend" not in backends)


@triton.jit
def high_product(
    x,  # uint32
    factor: tl.constexpr,
):
    """Return the high 32 bits of x * factor."""
    if WIDE_PRODUCTS:
        high = tl.umulhi(x, factor)
    else:
        low_half, high_half = x & 0xFFFF, x >> 16
        # Neither of these sums reaches 2^32.
        first = high_half * (factor & 0xFFFF) + ((low_half * (factor & 0xFFFF)) >> 16)
        second = low_half * (factor >> 16) + (first & 0xFFFF)
        high = high_half * (factor >> 16) + (first >> 16) + (second >> 16)
    return high


@triton.jit
def philox(
    x,  # uint32 [n], as are the next three: the counter
    y,
    z,
    w,
    seed,  # int64
):
    """Return the four random words of Philox4x32-10 (Salmon et al., 2011), uint32 [n] each."""
    key, other_key = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        first, second = high_product(x, 0xD2511F53), high_product(z, 0xCD9E8D57)
        low_first, low_second = x * 0xD2511F53, z * 0xCD9E8D57
        x, y, z, w = second ^ y ^ key, low_second, first ^ w ^ other_key, low_first
        key, other_key = key + 0x9E3779B9, other_key + 0xBB67AE85
    return x, y, z, w


@triton.jit
def exponential(words):
    """Return exponential numbers of rate 1, float32, from uint32 words.

    Small numbers decide, so log(1 - u) has to be right where u is small. Devices approximate the
    logarithm only in absolute terms there: it is a series in z = u / (2 - u), up to u = 1/2.
    """
    signed = words.to(tl.int32, bitcast=True)
    # -1 from the middle of the words on. No comparison: Ascend compares integers for equality only.
    is_large = signed >> 31
    # 1 - u of the words above the middle, which a float32 has without rounding it to 1.
    near = signed ^ is_large
    u = (near.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    z = u / (2.0 - u)
    square = z * z
    series = 1.0 / 15.0
    for odd in tl.static_range(13, 0, -2):
        series = series * square + 1.0 / odd
    return tl.where(is_large == 0, 2.0 * z * series, -tl.log(u))


@triton.jit
def words_of(
    seed,
    position,
    calls,  # [n] int32
    blocks,  # [n] int32
):
    """Return the four random words of each call for a block, uint32 [n] each."""
    zeros = blocks.to(tl.uint32) * 0
    low, high = zeros + position.to(tl.uint32), zeros + (position >> 32).to(tl.uint32)
    return philox(calls.to(tl.uint32), blocks.to(tl.uint32), low, high, seed)


@triton.jit
def least_of_blocks(
    seed,
    position,
    blocks,  # [n] int32
):
    """Return the least number of each block, float32 [n], and which of its tokens has it."""
    first, second, _, _ = words_of(seed, position, blocks * 0 + CALLS, blocks)
    return exponential(first) * (1.0 / BLOCK), (second % BLOCK).to(tl.int32)


@triton.jit
def beyond_least(
    seed,
    position,
    first_block,
    NUM_BLOCKS: tl.constexpr,
):
    """Return how much the numbers of some blocks' tokens exceed the least ones of their blocks.

    float32 [NUM_BLOCKS * BLOCK]. A call makes the words of four tokens: word w of call c is for
    token 32 w + c.
    """
    at = tl.arange(0, NUM_BLOCKS * CALLS)
    first, second, third, fourth = words_of(seed, position, at % CALLS, at // CALLS + first_block)
    word = tl.arange(0, WORDS)[None, :, None]
    numbers = spread(exponential(first), NUM_BLOCKS)
    numbers = tl.where(word == 1, spread(exponential(second), NUM_BLOCKS), numbers)
    numbers = tl.where(word == 2, spread(exponential(third), NUM_BLOCKS), numbers)
    numbers = tl.where(word == 3, spread(exponential(fourth), NUM_BLOCKS), numbers)
    return tl.reshape(numbers, (NUM_BLOCKS * BLOCK,))


@triton.jit
def spread(
    numbers,  # [NUM_BLOCKS * CALLS]
    NUM_BLOCKS: tl.constexpr,
):
    """Return each number once for every word of its call, [NUM_BLOCKS, WORDS, CALLS]."""
    whole = tl.reshape(numbers, (NUM_BLOCKS, 1, CALLS))
    return tl.broadcast_to(whole, (NUM_BLOCKS, WORDS, CALLS))
