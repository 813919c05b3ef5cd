"""Compute the peak and mass of every chunk of every row, for sampling without filters."""

from __future__ import annotations

import triton
import triton.language as tl

from .arith import find_request, kernel, rate_of, read_draft, read_score, read_scores, weight_of
from .greedy import token_of


@triton.jit
def note_draft(
    score,
    draft,
    index,
    draft_index,
    vocab_size,
    draft_probs,  # [num_drafts, vocab_size] float32 or None
    draft_score,  # [num_rows] float32, written
    draft_prob,  # [num_rows] float32, written if there are draft_probs
):
    """Store the logit of a row's draft and its draft probability, once per row."""
    tl.store(draft_score + index, score)
    if draft_probs is not None:
        q = 1.0
        if draft >= 0:
            q = tl.load(draft_probs + draft_index.to(tl.int64) * vocab_size + draft)
        tl.store(draft_prob + index, q)


@kernel
def scan_sampled(
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    draft_token_ids,  # [num_drafts]
    cu_num_draft_tokens,  # [num_reqs]
    temperature,  # [num_reqs]
    draft_probs,  # [num_drafts, vocab_size] or None
    draft_score,  # [num_rows], written
    draft_prob,  # [num_rows], written if there are draft_probs
    chunk_peak,  # [num_rows, num_chunks], written
    chunk_mass,  # [num_rows, num_chunks], written; for a greedy request, the argmax
    num_chunks,
    chunks_per_program,
    CHUNK: tl.constexpr,
):
    """Weigh some chunks of one row, without its draft. Grid: requests, positions, splits.

    Without the draft, the chunks' masses are those of the residual of a one-hot draft. Their sum is
    the probability of all other tokens, which 1 - p would give less accurately.
    """
    request, position, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, num_drafts = find_request(cu_num_draft_tokens, request)
    if position <= num_drafts:
        index = start + request + position
        row = logits + index.to(tl.int64) * row_stride
        t = tl.load(temperature + request)
        rate = rate_of(t)
        drafted = (position < num_drafts) & (t > 0)
        draft = read_draft(draft_token_ids, start + position, drafted)
        if split == 0:
            note_draft(
                read_score(row, draft),
                draft,
                index,
                start + position,
                vocab_size,
                draft_probs,
                draft_score,
                draft_prob,
            )
        first = split * chunks_per_program
        for chunk in range(first, tl.minimum(first + chunks_per_program, num_chunks)):
            offsets = chunk * CHUNK + tl.arange(0, CHUNK)
            x = read_scores(row, offsets, vocab_size, draft)
            peak = tl.max(x, axis=0)
            if t > 0:
                mass = tl.sum(weight_of(x, peak, rate), axis=0)
            else:
                mass = token_of(peak, x, offsets).to(tl.float32)
            tl.store(chunk_peak + index * num_chunks + chunk, peak)
            tl.store(chunk_mass + index * num_chunks + chunk, mass)
