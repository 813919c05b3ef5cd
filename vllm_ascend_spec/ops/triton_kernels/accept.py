"""Count the accepted drafts of a request, by the token rule or the block rule."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import element
from .residual import residual_masses


@triton.jit
def accept_by_token(uniform, p, q, drafts, positions, num_drafts, POSITIONS: tl.constexpr):
    """Return how many drafts the token rule accepts (Leviathan et al., 2211.17192)."""
    # Written so that NaN rejects: 0 times an infinite q is NaN, and no comparison with NaN is true.
    accepted = uniform * q < p
    rejected = (positions >= num_drafts) | (drafts < 0) | ~accepted
    return tl.min(tl.where(rejected, positions, POSITIONS), axis=0)


@triton.jit
def weights_of_one_hot(p, rest, positions, length, POSITIONS: tl.constexpr):
    """Return w, the weight before each position, and 1 - w for one-hot drafts (docs/block_rule.md).

    Args:
        p: float32 [POSITIONS], target probability of each draft.
        rest: float32 [POSITIONS], 1 - p of each draft. Summing it gives 1 - w more accurately than
            subtracting w from 1 (docs/block_rule.md, lemma 7).
        positions: int32 [POSITIONS].
        length: number of drafts in the block.
        POSITIONS: size of the vectors.
    """
    weight, missing = 1.0, 0.0
    weights = tl.full((POSITIONS,), 1.0, tl.float32)
    missings = tl.zeros((POSITIONS,), tl.float32)
    for position in range(length):
        missing += weight * element(rest, positions, position)
        weight = tl.minimum(weight * element(p, positions, position), 1.0)
        weights = tl.where(positions > position, weight, weights)
        missings = tl.where(positions > position, missing, missings)
    return weights, missings


@triton.jit
def parts(x):
    """Return the mantissas of positive numbers, in [1, 2), and their exponents, int32."""
    small = x < 1.1754943508222875e-38  # the least normal number
    bits = tl.where(small, x * 18446744073709551616.0, x).to(tl.int32, bitcast=True)
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    return mantissa, (bits >> 23) - 127 - tl.where(small, 64, 0)


@triton.jit
def weights_of_samples(p, q, positions, length, POSITIONS: tl.constexpr):
    """Return w, the weight before each position, for sampled drafts (docs/block_rule.md).

    Mantissa and exponent are kept separately: a product may be smaller than every float32, and a
    later q of 0 makes it 1 again.

    Args:
        p: float32 [POSITIONS], target probability of each draft.
        q: float32 [POSITIONS], draft probability of each draft, 0 or more.
        positions: int32 [POSITIONS].
        length: number of drafts in the block.
        POSITIONS: size of the vectors.
    """
    top, up = parts(p)
    bottom, down = parts(q)
    ratio, growth = top / bottom, up - down
    # A weight of 0 stays 0 (docs/block_rule.md, lemma 2).
    ends = ((p <= 0) | (q == float("inf"))).to(tl.int32)
    is_free = (q == 0).to(tl.int32)
    mantissa, exponent, has_ended = 1.0, 0, 0
    weights = tl.full((POSITIONS,), 1.0, tl.float32)
    for position in range(length):
        mantissa, more = parts(mantissa * element(ratio, positions, position))
        exponent += element(growth, positions, position) + more
        is_whole = (exponent >= 0) | (element(is_free, positions, position) > 0)
        mantissa = tl.where(is_whole, 1.0, mantissa)
        exponent = tl.where(is_whole, 0, exponent)
        has_ended = has_ended | element(ends, positions, position)
        power = ((tl.maximum(exponent, -126) + 127) << 23).to(tl.float32, bitcast=True)
        is_nothing = (has_ended > 0) | (exponent < -126)
        weight = tl.where(is_nothing, 0.0, mantissa * power)
        weights = tl.where(positions > position, weight, weights)
    return weights


@triton.jit
def accept_block_of_one_hot(
    uniform_before,  # [POSITIONS], the uniform of the draft before each position
    p,  # [POSITIONS]
    rest,  # [POSITIONS], 1 - p
    positions,  # [POSITIONS]
    length,
    POSITIONS: tl.constexpr,
):
    """Return how many one-hot drafts the block rule accepts.

    The residual of a one-hot draft sums to w * (1 - p) (docs/block_rule.md, lemma 7), so all
    positions can be judged at once.
    """
    weights, missing = weights_of_one_hot(p, rest, positions, length, POSITIONS)
    residual = weights * rest
    # ``missing`` is 0 at a weight of 1, where the chance is 1 (docs/block_rule.md, lemma 8).
    chance = tl.where(missing > 0, residual / (residual + missing), 1.0)
    chance = tl.where(positions == length, weights, chance)
    accepted = (positions >= 1) & (positions <= length) & (uniform_before < chance)
    return tl.max(tl.where(accepted, positions, 0), axis=0)


@triton.jit
def accept_block_of_samples(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    draft_probs,  # [num_drafts, vocab_size]
    first_row,
    first_draft,
    uniform_before,  # [POSITIONS], the uniform of the draft before each position
    p,  # [POSITIONS], of each draft
    q,  # [POSITIONS], of each draft
    peak,  # [POSITIONS]
    total,  # [POSITIONS], mass of each row relative to its peak
    threshold,  # [POSITIONS]
    rate,
    positions,  # [POSITIONS]
    length,
    POSITIONS: tl.constexpr,
    CHUNKS: tl.constexpr,
    SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return how many sampled drafts the block rule accepts, and the weight after them.

    A residual is summed only where the uniform is below the weight, from the last position
    backwards until one is accepted (docs/block_rule.md, lemmas 1 and 3).
    """
    weights = weights_of_samples(p, q, positions, length, POSITIONS)
    possible = (positions >= 1) & (positions <= length) & (uniform_before < weights)
    accepted = tl.max(tl.where(possible & (positions == length), positions, 0), axis=0)
    for back in range(1, length):
        position = length - back
        candidate = element(possible.to(tl.int32), positions, position)
        if (candidate > 0) & (accepted == 0):
            weight = element(weights, positions, position)
            masses = residual_masses(
                logits + (first_row + position).to(tl.int64) * row_stride,
                draft_probs + (first_draft + position).to(tl.int64) * vocab_size,
                vocab_size,
                -1,
                element(peak, positions, position),
                element(threshold, positions, position),
                rate,
                weight / element(total, positions, position),
                tl.where(candidate > 0, 1.0, 0.0),
                CHUNKS,
                SIDE,
                STAGES,
            )
            residual = tl.sum(masses, axis=0)
            chance = tl.where(weight >= 1, 1.0, residual / (residual + 1 - weight))
            uniform = element(uniform_before, positions, position)
            accepted = tl.where(uniform < chance, position, 0)
    return accepted, element(weights, positions, accepted)
