"""Executes lowered kernels in place of Triton's launches, under the backends' own host code.

A kernel's launch is made with the IR that goes to Ascend's compiler, compiled for this CPU. Each
launch runs in a process of its own, between fences: an access outside of its tensors fails.
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import mmap
import os
import re
import signal
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.ops.triton_ascend.build import build
from tests.ops.triton_ascend.environment import ROOT
from tests.ops.triton_ascend.lowering import Variant, lower, result, split_arguments, variant_of
from tests.ops.triton_ascend.memory import Fenced

# Ascend refuses larger grids.
MOST_PROGRAMS = 65535
# Workspace and lock come before a kernel's own arguments, sizes and indices of the grid after.
ARGUMENTS_BEFORE = 2
_FUNCTION = re.compile(r"func\.func @(\w+)\(")


class AccessError(Exception):
    """A program touched memory outside of its tensors, or died otherwise."""


@dataclass
class Machine:
    """Where kernels are lowered and executed.

    Attributes:
        folder: for compiled kernels, kept from launch to launch.
        fence_at_start: whether a tensor's first element, not its last, lies at a fence; programs
            then run in reverse order, too.
        root: where the kernels' modules are.
        launches: the variants that were launched, with how often.
    """

    folder: Path
    root: Path = ROOT
    fence_at_start: bool = False
    launches: dict[Variant, int] = field(default_factory=dict)

    def prepare(self, variants: Iterable[Variant]) -> None:
        """Lower and compile kernels, so that launches find them ready."""
        folders = lower(variants, self.folder, root=self.root)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(build, folders.values()))

    def launch(self, variant: Variant, grid: tuple[int, ...], values: dict[str, Any]) -> None:
        """Execute a kernel over a grid; tensors among ``values`` are read and written."""
        self.launches[variant] = self.launches.get(variant, 0) + 1
        folder = lower([variant], self.folder, root=self.root)[variant]
        name = _FUNCTION.search(result(folder, "linalg.mlir"))
        assert name is not None, variant
        library = ctypes.CDLL(str(build(folder)))
        fenced = [
            Fenced(value, at_start=self.fence_at_start) if isinstance(value, torch.Tensor) else None
            for value in values.values()
        ]
        arguments = [_no_memory() for _ in range(ARGUMENTS_BEFORE)]
        for (_, kind), value, fence in zip(variant.signature, values.values(), fenced, strict=True):
            arguments.append([_scalar(kind, value)] if fence is None else _memory(value, fence))
        flat = list(itertools.chain(*arguments))
        self._run(variant, library, getattr(library, name[1]), flat, grid)
        for fence in filter(None, fenced):
            fence.copy_back()

    def _run(
        self,
        variant: Variant,
        library: ctypes.CDLL,
        kernel: Any,
        arguments: list[Any],
        grid: tuple[int, ...],
    ) -> None:
        sizes = (*grid, 1, 1)[:3]
        if sizes[0] * sizes[1] * sizes[2] > MOST_PROGRAMS:
            raise ValueError(f"{variant}: grid {grid} has more than {MOST_PROGRAMS} programs")
        programs = list(itertools.product(*(range(size) for size in sizes)))
        if self.fence_at_start:
            programs.reverse()
        ends = [ctypes.c_int32(size) for size in sizes]

        def run_all(note: Callable[[int], None]) -> None:
            for number, program in enumerate(programs):
                note(number)
                library.ta_begin_program()
                kernel(*arguments, *ends, *map(ctypes.c_int32, program))

        problem = in_a_process(run_all)
        if problem is not None:
            number, what = problem
            text = f"program {programs[number]} of {grid} {what}"
            raise AccessError(f"{variant}: {text}")


def in_a_process(work: Callable[[Callable[[int], None]], None]) -> tuple[int, str] | None:
    """Run ``work`` in a forked process; return the last number it noted, and how it died, if so."""
    progress = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        # Dying is an answer here, no reason for a dump.
        faulthandler.disable()
        code = 1
        try:
            work(lambda number: struct.pack_into("q", progress, 0, number))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    outside = code in (-signal.SIGSEGV, -signal.SIGBUS)
    what = "touched memory outside of its tensors" if outside else f"ended with {code}"
    return struct.unpack_from("q", progress)[0], what


def _no_memory() -> list[Any]:
    zero = ctypes.c_int64(0)
    return [ctypes.c_void_p(0), ctypes.c_void_p(0), zero, zero, ctypes.c_int64(1)]


def _memory(tensor: torch.Tensor, fence: Fenced) -> list[Any]:
    """Return a memref of rank 1: allocated and aligned address, offset, size, stride."""
    address = ctypes.c_void_p(fence.address)
    size = ctypes.c_int64(fence.size // tensor.element_size())
    return [address, address, ctypes.c_int64(0), size, ctypes.c_int64(1)]


def _scalar(kind: str, value: float) -> Any:
    return {"i32": ctypes.c_int32, "i64": ctypes.c_int64}[kind](value)


Receiver = Callable[[Variant, tuple[int, ...], dict[str, Any]], None]


class Launcher:
    """Stands in for a Triton kernel: ``kernel[grid](*args, **kwargs)`` calls ``receive``."""

    def __init__(self, kernel: Any, receive: Receiver) -> None:
        self.kernel = kernel
        self.receive = receive

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            variant = variant_of(self.kernel, args, kwargs)
            values, _ = split_arguments(self.kernel, args, kwargs)
            self.receive(variant, tuple(grid), values)

        return launch
