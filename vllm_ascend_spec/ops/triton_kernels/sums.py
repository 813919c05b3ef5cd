"""Compute the probability of each of a request's drafts from the chunks of its rows."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import weight_of


@triton.jit
def row_masses(
    chunk_peak,  # [num_rows, num_chunks]
    chunk_mass,  # [num_rows, num_chunks], without the draft
    draft_score,  # [POSITIONS]
    rate,
    rows,  # [POSITIONS]
    used,  # [POSITIONS]
    num_chunks,
    POSITIONS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Add up the chunks of each row.

    Returns:
        Each row's peak, and relative to it the mass of its draft and that of all other tokens.
    """
    peak = draft_score
    for first in range(0, num_chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        at = rows[:, None] * num_chunks + chunk[None, :]
        mask = used[:, None] & (chunk < num_chunks)[None, :]
        peaks = tl.load(chunk_peak + at, mask=mask, other=float("-inf"))
        peak = tl.maximum(peak, tl.max(peaks, axis=1))
    others = tl.zeros((POSITIONS,), tl.float32)
    for first in range(0, num_chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        at = rows[:, None] * num_chunks + chunk[None, :]
        mask = used[:, None] & (chunk < num_chunks)[None, :]
        peaks = tl.load(chunk_peak + at, mask=mask, other=float("-inf"))
        masses = tl.load(chunk_mass + at, mask=mask, other=0.0)
        others += tl.sum(masses * weight_of(peaks, peak[:, None], rate), axis=1)
    return peak, weight_of(draft_score, peak, rate), others


@triton.jit
def row_probabilities(
    draft_score,  # [num_rows]
    chunk_peak,  # [num_rows, num_parts]
    chunk_mass,  # [num_rows, num_parts]
    threshold,  # [num_rows] or None
    rate,
    drafts,  # [POSITIONS]
    rows,  # [POSITIONS]
    used,  # [POSITIONS]
    num_parts,
    POSITIONS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Return each row's peak, threshold and mass, and the shares of its draft and of the rest."""
    score = tl.load(draft_score + rows, mask=used, other=float("-inf"))
    peak, own, others = row_masses(
        chunk_peak,
        chunk_mass,
        score,
        rate,
        rows,
        used,
        num_parts,
        POSITIONS,
        TILE,
    )
    limit = tl.full((POSITIONS,), float("-inf"), tl.float32)
    if threshold is not None:
        limit = tl.load(threshold + rows, mask=used, other=float("-inf"))
        own = tl.where(score >= limit, own, 0.0)
    # In a row of only -inf, token 0 has all of the mass.
    nothing = peak == float("-inf")
    own = tl.where(nothing, (drafts == 0).to(tl.float32), own)
    others = tl.where(nothing, (drafts != 0).to(tl.float32), others)
    total = own + others
    return peak, limit, total, own / total, others / total
