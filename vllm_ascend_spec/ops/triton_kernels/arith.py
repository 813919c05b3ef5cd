"""What all kernels share: where rows are, how values are read and weighed."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def find_request(
    cu_num_draft_tokens,  # [num_reqs] int32
    request,
):
    """Return a request's first draft and its number of drafts."""
    start = tl.load(cu_num_draft_tokens + request - 1, mask=request > 0, other=0)
    return start, tl.load(cu_num_draft_tokens + request) - start


@triton.jit
def read_scores(
    row,  # [vocab_size], one row of the logits
    offsets,
    vocab_size,
    left_out,
):
    """Load logits as float32: NaN, ``left_out`` and what is past the vocabulary are -inf."""
    # Left out after loading: a mask with a hole would break up the vector loads.
    x = tl.load(row + offsets, mask=offsets < vocab_size, other=float("-inf")).to(tl.float32)
    return tl.where((x == x) & (offsets != left_out), x, float("-inf"))


@triton.jit
def read_score(
    row,  # [vocab_size], one row of the logits
    token,
):
    """Load one logit as float32: -inf if it is NaN or ``token`` is -1."""
    x = tl.load(row + token, mask=token >= 0, other=float("-inf")).to(tl.float32)
    return tl.where(x == x, x, float("-inf"))


@triton.jit
def inverse_of(temperature):
    """Return 1/T, kept from 0 and infinity so that no product of it is NaN."""
    return tl.maximum(1.0 / tl.maximum(temperature, 2e-38), 2e-38)


@triton.jit
def weight_of(x, peak, inverse_temperature):
    """Return exp((x - peak) / T), which is 1 at the peak, an infinite one too."""
    distance = tl.where(x == peak, 0.0, x - peak)
    return tl.exp(distance * inverse_temperature)


@triton.jit
def read_uniforms(
    uniforms,  # [n, 2] int32, the low and high words of float64 in [0, 1)
    index,
    mask,
):
    """Load uniforms as float32, cut off rather than rounded, so that they stay below 1."""
    low = tl.load(uniforms + 2 * index, mask=mask, other=0)
    high = tl.load(uniforms + 2 * index + 1, mask=mask, other=0)
    # 11 bits of exponent, biased by 1023, become 8 biased by 127; 52 bits of fraction become 23.
    exponent = (high >> 20) - (1023 - 127)
    fraction = ((high & 0xFFFFF) << 3) | ((low >> 29) & 7)
    value = ((exponent << 23) | fraction).to(tl.float32, bitcast=True)
    return tl.where(exponent > 0, value, 0.0)


@triton.jit
def element(vector, positions, index):
    """Return the element of ``vector`` at ``index``; ``positions`` counts from 0."""
    return tl.sum(tl.where(positions == index, vector, tl.zeros_like(vector)), axis=0)
