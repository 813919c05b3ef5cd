"""Launch Triton kernels: tell on which devices they run, and split the work."""

from __future__ import annotations

import contextlib
import functools
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

# Triton's backend for a device and the package it comes with.
COMPILERS = {"cuda": ("nvidia", "triton"), "npu": ("ascend", "triton-ascend")}
# Programs per multiprocessor that keep its memory busy.
PROGRAMS_PER_CORE = 8
# Chunks are squares, so that a token's position in a chunk is found from the sums of its lines.
SMALLEST_SIDE, USUAL_SIDE = 16, 64
MOST_CHUNKS = 128
TOKENS_PER_WARP = 1024
# Elements of the tile in which a request's chunks are summed.
TILE_SIZE = 4096
# Kernels are compiled for at least this many rows per request, so that all small numbers of drafts
# share one variant.
FEWEST_POSITIONS = 8
# Lanes of a row whose largest logits are collected, see triton_kernels/search.py. An NPU can hold
# fewer on chip.
FEWEST_LANES, MOST_LANES, MOST_LANES_OF_NPU = 256, 4096, 2048
# Tokens are stored as float32, which holds integers exactly up to here.
LARGEST_VOCABULARY = 1 << 24


def problem(device_type: str) -> str | None:
    """Return why Triton kernels cannot run on a device, or None if they can."""
    try:
        from triton import JITFunction, language
        from triton.backends import backends
    except ImportError as error:
        return f"Triton cannot be imported ({error}); install the package triton"
    if not isinstance(language.max, JITFunction):
        return None  # the interpreter takes any tensor
    if device_type in COMPILERS:
        compiler, package = COMPILERS[device_type]
        if compiler in backends:
            return None
        return f"Triton has no backend {compiler!r} for {device_type}; install {package}"
    return (
        f"Triton kernels run on {device_type} only in the interpreter; "
        "set TRITON_INTERPRET=1 before Triton is imported"
    )


@dataclass(frozen=True)
class LaunchPlan:
    """How the rows of a batch are split. Depends only on shapes, so that a graph can capture it.

    Attributes:
        grid: programs of the first launch: requests, positions, splits of a row.
        side: a chunk has side * side tokens.
        num_chunks: number of chunks per row.
        chunks_per_split: number of chunks that one program processes.
        positions: number of rows per request, rounded up to a power of two.
        num_warps: number of warps of a program that processes chunks.
    """

    grid: tuple[int, int, int]
    side: int
    num_chunks: int
    chunks_per_split: int
    positions: int
    num_warps: int

    @property
    def chunk(self) -> int:
        """Number of tokens in a chunk."""
        return self.side * self.side

    @property
    def padded_chunks(self) -> int:
        """Number of chunks, rounded up to a power of two."""
        return power_of_two(self.num_chunks)

    def tile(self, num_parts: int) -> int:
        """Return how many parts of each row are summed at once."""
        return min(power_of_two(num_parts), max(TILE_SIZE // self.positions, 1))


def make_plan(num_reqs: int, max_draft_len: int, vocab_size: int, num_cores: int) -> LaunchPlan:
    """Split a batch so that one request keeps all cores busy and many do not overload them.

    Raises:
        ValueError: the vocabulary is too large.
    """
    if vocab_size > LARGEST_VOCABULARY:
        raise ValueError(f"logits: vocabulary of {vocab_size}, at most {LARGEST_VOCABULARY}")
    side = SMALLEST_SIDE
    while side * side < vocab_size and side < USUAL_SIDE:
        side *= 2
    while side * side * MOST_CHUNKS < vocab_size:
        side *= 2
    num_chunks = -(-vocab_size // (side * side))
    rows = num_reqs * (max_draft_len + 1)
    wanted = max(num_cores * PROGRAMS_PER_CORE // rows, 1)
    chunks_per_split = -(-num_chunks // min(wanted, num_chunks))
    splits = -(-num_chunks // chunks_per_split)
    return LaunchPlan(
        grid=(num_reqs, max_draft_len + 1, splits),
        side=side,
        num_chunks=num_chunks,
        chunks_per_split=chunks_per_split,
        positions=max(power_of_two(max_draft_len + 1), FEWEST_POSITIONS),
        num_warps=min(max(side * side // TOKENS_PER_WARP, 4), 16),
    )


def is_aligned(logits: torch.Tensor) -> bool:
    """Tell whether rows are read in vectors; otherwise pipelined loops run out of registers."""
    return logits.shape[1] % 16 == 0 and logits.stride(0) % 16 == 0


def lanes_of(vocab_size: int, device: torch.device) -> int:
    """Return the number of lanes in which a row is filtered."""
    most = MOST_LANES_OF_NPU if device.type == "npu" else MOST_LANES
    return min(max(power_of_two(vocab_size), FEWEST_LANES), most)


def stores_holes(device: torch.device) -> bool:
    """Tell whether a store under any mask leaves other elements alone; on Ascend it does not."""
    return device.type == "cuda"


def power_of_two(number: int) -> int:
    """Return the lowest power of two that is not less than ``number``."""
    return 1 << (number - 1).bit_length()


@functools.lru_cache
def num_cores(device: torch.device) -> int:
    """Return how many multiprocessors (NPU: vector cores) a device has; 1 on a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "npu":
        return 40  # of the smallest Atlas A2; programs beyond the number of cores queue up
    return 1


def on_device(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Make the device of ``tensor`` the current one, on which Triton launches."""
    if tensor.device.type != "cuda" or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def words_of(uniforms: torch.Tensor) -> torch.Tensor:
    """View float64 [n] as int32 words, which kernels read without float64 arithmetic."""
    # A tensor of one element may keep a stride that ``view`` would refuse.
    return uniforms.contiguous().as_strided(uniforms.shape, (1,)).view(torch.int32)
