"""Kernels that break one rule each, and one that keeps them all: the linter must tell.

Read by triton-ascend only; nothing here is run on a device.
"""
# ruff: noqa: N803 - constants are in capitals, as in all kernels

import triton
import triton.language as tl

TINY = tl.constexpr(1e-39)


@triton.jit
def sound(x, out, size, stride, BLOCK: tl.constexpr):
    """Keeps all rules: sums of rows, block by block."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, size, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        total += tl.load(x + row * stride + offsets, mask=offsets < size, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@triton.jit
def discrete(x, index, out, BLOCK: tl.constexpr):
    """Gathers by addresses that are data."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + tl.load(index + at)))


@triton.jit
def dropped_load_mask(x, out, size, SIDE: tl.constexpr):
    """Compares the linear index of a square, which is no box of rows and columns."""
    line = tl.arange(0, SIDE)
    at = line[:, None] * SIDE + line[None, :]
    tl.store(out + line, tl.sum(tl.load(x + at, mask=at < size, other=0.0), axis=1))


@triton.jit
def dropped_store_mask(x, out, BLOCK: tl.constexpr):
    """Stores with holes."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, value, mask=value > 0)


@triton.jit
def unguarded(x, out, size):
    """Loads one element under a mask."""
    index = tl.program_id(0)
    tl.store(out + index, tl.load(x + index, mask=index < size, other=0.0))


@triton.jit
def float64(x, out, BLOCK: tl.constexpr):
    """Has a constant that Triton 3.2 takes for float64."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.maximum(tl.load(x + at), TINY))


@triton.jit
def int64_vector(x, out, size, BLOCK: tl.constexpr):
    """Adds up in int64."""
    total = tl.zeros((BLOCK,), tl.int64)
    for first in range(0, size, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        total += tl.load(x + offsets, mask=offsets < size, other=0).to(tl.int64)
    tl.store(out, tl.sum(total, axis=0))


@triton.jit
def _store_and_return(out, index):
    tl.store(out + index, 1.0)
    return index


@triton.jit
def branches(out, size):
    """Calls a helper that returns something as a statement: does not lower."""
    index = tl.program_id(0)
    if index < size:
        _store_and_return(out, index)


@triton.jit
def slow_compare(x, out, size, limit, BLOCK: tl.constexpr):
    """Compares int32 vectors by order within a loop."""
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, size, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < size, other=0)
        total += tl.where(value < limit, 1.0, 0.0)
    tl.store(out, tl.sum(total, axis=0))


@triton.jit
def out_of_bounds(x, out, size, BLOCK: tl.constexpr):
    """Reads a block whole that may be only partly there."""
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + at), axis=0) + size)
