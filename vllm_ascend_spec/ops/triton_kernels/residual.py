"""Draw a request's last token from the chunk sums of a row, or from the whole row."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import read_scores, weight_of
from .draw import chunk_tokens, pick, pick_in_chunk


@triton.jit
def draw_from_chunks(
    row,  # [vocab_size], one row of the logits
    vocab_size,
    draft,
    peak,
    rate,
    peaks,  # [CHUNKS], without the draft; -inf past the last
    masses,  # [CHUNKS], relative to ``peaks``
    uniform,
    CHUNKS: tl.constexpr,
    SIDE: tl.constexpr,
):
    """Draw a token other than ``draft``: pick a chunk by the masses, then read only that chunk."""
    # If no other token is above -inf, the draft has all of the mass. In a row of only -inf, token 0
    # has it.
    token = tl.where(peak > float("-inf"), draft, 0)
    # Relative to the peak without the draft, so that a dominant draft causes no underflow.
    highest = tl.max(peaks, axis=0)
    if highest > float("-inf"):
        masses *= weight_of(peaks, highest, rate)
        goal = uniform * tl.sum(masses, axis=0)
        chunk, before = pick(masses, goal, CHUNKS)
        x = read_scores(row, chunk_tokens(chunk, SIDE), vocab_size, draft)
        weights = weight_of(x, highest, rate)
        token = pick_in_chunk(chunk, weights, goal - before, SIDE)
    return token


@triton.jit
def residual_weights(
    row,  # [vocab_size], one row of the logits
    q_row,  # [vocab_size], one row of the draft's probabilities, or None
    chunk,
    vocab_size,
    draft,
    peak,
    threshold,
    rate,
    share,
    minus,
    SIDE: tl.constexpr,
):
    """Return max(share * exp((x - peak) / T) - minus * q, 0) of a chunk, [SIDE * SIDE].

    Tokens below ``threshold`` have no weight. In a row of only -inf, token 0 has all of it. A q of
    NaN or below 0 counts as 0. Without ``q_row``, the draft is one-hot: q is 1 for ``draft``.
    ``minus`` is 0 or 1.
    """
    tokens = chunk_tokens(chunk, SIDE)
    x = read_scores(row, tokens, vocab_size, None)
    weights = tl.where(x >= threshold, weight_of(x, peak, rate), 0.0)
    # Token 0 is selected by arithmetic: ``tl.where`` would hold four more vectors on chip.
    nothing = (peak == float("-inf")).to(tl.float32)
    first = tl.maximum(1.0 - tokens.to(tl.float32), 0.0)
    weights = weights * (share * (1 - nothing)) + first * (share * nothing)
    if q_row is None:
        weights = tl.where(tokens == tl.where(minus > 0, draft, -1), 0.0, weights)
    else:
        # Bonus rows have no q; nothing may be read there.
        limit = tl.where(minus > 0, vocab_size, 0)
        q = tl.load(q_row + tokens, mask=tokens < limit, other=0.0)
        # By a comparison: what the maximum of 0 and NaN is depends on the device.
        q = tl.where(q > 0, q, 0.0)
        weights = tl.maximum(weights - minus * q, 0.0)
    return weights


@triton.jit
def residual_masses(
    row,  # [vocab_size], one row of the logits
    q_row,  # [vocab_size], one row of the draft's probabilities, or None
    vocab_size,
    draft,
    peak,
    threshold,
    rate,
    share,
    minus,
    CHUNKS: tl.constexpr,
    SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return the sum of :func:`residual_weights` of each chunk, [CHUNKS]."""
    index = tl.arange(0, CHUNKS)
    masses = tl.zeros((CHUNKS,), tl.float32)
    for chunk in tl.range(0, tl.cdiv(vocab_size, SIDE * SIDE), num_stages=STAGES):
        weights = residual_weights(
            row,
            q_row,
            chunk,
            vocab_size,
            draft,
            peak,
            threshold,
            rate,
            share,
            minus,
            SIDE,
        )
        lines = tl.sum(tl.reshape(weights, (SIDE, SIDE)), axis=1)
        masses = tl.where(index == chunk, tl.sum(lines, axis=0), masses)
    return masses


@triton.jit
def draw_from_row(
    row,  # [vocab_size], one row of the logits
    q_row,  # [vocab_size], one row of the draft's probabilities, or None
    vocab_size,
    draft,
    peak,
    threshold,
    rate,
    share,
    uniform,
    CHUNKS: tl.constexpr,
    SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Draw from the residual of ``draft``; from the row if it is -1 or the residual is empty.

    ``share`` turns weights relative to ``peak`` into probabilities times the block's weight.
    """
    # Only rounding empties a residual (docs/block_rule.md, lemma 8). The second pass then draws
    # from the row itself, as for a draft of -1.
    minus = tl.where(draft >= 0, 2.0, 1.0)
    masses = tl.zeros((CHUNKS,), tl.float32)
    total = tl.sum(masses, axis=0)
    for _ in range(2):
        if total <= 0:
            minus = tl.maximum(minus - 1, 0.0)
            masses = residual_masses(
                row,
                q_row,
                vocab_size,
                draft,
                peak,
                threshold,
                rate,
                share,
                minus,
                CHUNKS,
                SIDE,
                STAGES,
            )
            total = tl.sum(masses, axis=0)
    chunk, before = pick(masses, uniform * total, CHUNKS)
    weights = residual_weights(
        row,
        q_row,
        chunk,
        vocab_size,
        draft,
        peak,
        threshold,
        rate,
        share,
        minus,
        SIDE,
    )
    return pick_in_chunk(chunk, weights, uniform * total - before, SIDE)
