"""Invert a cumulative distribution in vocabulary order."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pick(weights, goal, SIZE: tl.constexpr):
    """Return the first index at which the running sum exceeds ``goal``, and the sum before it.

    An index without weight is never picked. If rounding puts the goal at the very end, the last
    index with weight is picked. Each running sum is a masked sum of its own and not a step of a
    scan, so it is rounded only a few times.
    """
    index = tl.arange(0, SIZE)
    triangle = tl.where(index[None, :] <= index[:, None], weights[None, :], 0.0)
    beyond = (tl.sum(triangle, axis=1) > goal) & (weights > 0)
    first = tl.min(tl.where(beyond, index, SIZE), axis=0)
    last = tl.max(tl.where(weights > 0, index, 0), axis=0)
    chosen = tl.minimum(first, last)
    return chosen, tl.sum(tl.where(index < chosen, weights, 0.0), axis=0)


@triton.jit
def chunk_tokens(chunk, SIDE: tl.constexpr):
    """Return the tokens of a chunk, int32 [SIDE * SIDE]."""
    return chunk * SIDE * SIDE + tl.arange(0, SIDE * SIDE)


@triton.jit
def pick_in_chunk(chunk, weights, goal, SIDE: tl.constexpr):
    """Return the token of ``chunk`` at which the running sum of ``weights`` exceeds ``goal``."""
    weights = tl.reshape(weights, (SIDE, SIDE))
    line, before = pick(tl.sum(weights, axis=1), goal, SIDE)
    own = tl.where((tl.arange(0, SIDE) == line)[:, None], weights, 0.0)
    column, _ = pick(tl.sum(own, axis=0), goal - before, SIDE)
    return chunk * SIDE * SIDE + line * SIDE + column
