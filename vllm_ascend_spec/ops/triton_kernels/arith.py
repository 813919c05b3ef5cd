"""Functions that all kernels share: they locate rows, and read and weigh values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

# Triton compiles another variant of a kernel if one of these is divisible by 16. That variant loads
# rows in vectors.
SPECIALIZED = ("logits", "draft_probs", "row_stride", "vocab_size")

# log2(e): the nearest float32, and the remainder.
LOG2_E = tl.constexpr(1.4426950216293335)
LOG2_E_REST = tl.constexpr(1.92596298909109e-08)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function as a kernel that is not compiled anew for other batch shapes."""
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in SPECIALIZED and "constexpr" not in str(parameter.annotation)
    ]
    return triton.jit(function, do_not_specialize=names)


@triton.jit
def find_request(
    cu_num_draft_tokens,  # [num_reqs] int32
    request,
):
    """Return a request's first draft and its number of drafts."""
    start = 0
    if request > 0:
        start = tl.load(cu_num_draft_tokens + request - 1)
    return start, tl.load(cu_num_draft_tokens + request) - start


@triton.jit
def read_draft(
    draft_token_ids,  # [num_drafts] int32
    index,
    drafted,
):
    """Return the draft at ``index``, or -1 if not ``drafted``."""
    draft = -1
    if drafted:
        draft = tl.load(draft_token_ids + index)
    return draft


@triton.jit
def read_scores(
    row,  # [vocab_size], one row of the logits
    offsets,
    vocab_size,
    left_out,
):
    """Load logits as float32; NaN, ``left_out`` (if given) and tokens past the end are -inf."""
    # Left out after loading: a mask with a hole would break up the vector loads.
    x = tl.load(row + offsets, mask=offsets < vocab_size, other=float("-inf")).to(tl.float32)
    wanted = x == x
    if left_out is not None:
        wanted &= offsets != left_out
    return tl.where(wanted, x, float("-inf"))


@triton.jit
def read_score(
    row,  # [vocab_size], one row of the logits
    token,
):
    """Load one logit as float32: -inf if it is NaN or ``token`` is -1."""
    x = float("-inf")
    if token >= 0:
        x = tl.load(row + token).to(tl.float32)
    return tl.where(x == x, x, float("-inf"))


@triton.jit
def halves(x):
    """Split a float32 into two numbers of half its bits each, so that their products are exact."""
    high = (x.to(tl.int32, bitcast=True) & -4096).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def rate_of(temperature):
    """Return log2(e) / T, exact to the last bit because each logit's distance multiplies its error.

    It is never 0 or infinite, so that no product with it is NaN.
    """
    t = tl.minimum(tl.maximum(temperature, 2e-38), 1e37)
    rate = LOG2_E / t
    # Devices divide approximately. The remainder is computed exactly, so one correction is enough.
    rate_high, rate_low = halves(rate)
    t_high, t_low = halves(t)
    rest = (LOG2_E - rate_high * t_high) - rate_high * t_low - rate_low * t_high
    return rate + (rest - rate_low * t_low + LOG2_E_REST) / t


@triton.jit
def weight_of(x, peak, rate):
    """Return exp((x - peak) / T), which is 1 at the peak, even if that is infinite."""
    distance = tl.where(x == peak, 0.0, x - peak)
    return tl.exp2(distance * rate)


@triton.jit
def read_uniforms(
    uniforms,  # [n, 2] int32, the low and high words of float64 in [0, 1)
    index,
    mask,
):
    """Load uniforms as float32, truncated rather than rounded, so that they stay below 1."""
    low = tl.load(uniforms + 2 * index, mask=mask, other=0)
    high = tl.load(uniforms + 2 * index + 1, mask=mask, other=0)
    return uniform_of(low, high)


@triton.jit
def read_uniform(
    uniforms,  # [n, 2] int32, the low and high words of float64 in [0, 1)
    index,
):
    """Load one uniform as float32, see :func:`read_uniforms`."""
    return uniform_of(tl.load(uniforms + 2 * index), tl.load(uniforms + 2 * index + 1))


@triton.jit
def uniform_of(low, high):
    """Truncate the float64 in [0, 1) that has these words to float32."""
    # 11 bits of exponent, biased by 1023, become 8 biased by 127; 52 bits of fraction become 23.
    exponent = (high >> 20) - (1023 - 127)
    fraction = ((high & 0xFFFFF) << 3) | ((low >> 29) & 7)
    value = ((exponent << 23) | fraction).to(tl.float32, bitcast=True)
    return tl.where(exponent > 0, value, 0.0)


@triton.jit
def element(vector, positions, index):
    """Return the element of ``vector`` at ``index``; ``positions`` counts from 0."""
    return tl.sum(tl.where(positions == index, vector, tl.zeros_like(vector)), axis=0)
