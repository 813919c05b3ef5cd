"""Compiling the kernels for an NVIDIA GPU where there is none, through the backends themselves."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class FakeDriver:
    """Tells Triton what it asks about a GPU before it launches."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        # Compiled kernels are kept by device: another one for every capability.
        return self.capability

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def compiling_only(capability: int) -> Iterator[list[Any]]:
    """Compile every kernel that is launched, for compute capability 8.0 as 80; launch none.

    Yields:
        The compiled kernels, in the order of their launches.
    """
    compiled: list[Any] = []
    run = JITFunction.run

    def compile_instead(self: JITFunction, *args: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, warmup=True, **kwargs)
        compiled.append(kernel)
        return kernel

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_active", FakeDriver(capability))
        patch.setattr(JITFunction, "run", compile_instead)
        # The tensors are on the CPU; the answer is to be that for a GPU.
        host = importlib.import_module("vllm_ascend_spec.ops.grammar_mask.triton")
        patch.setattr(host, "stores_holes", lambda device: True)
        yield compiled


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of a multiprocessor, by ``cuobjdump``.

    Attributes:
        registers: per thread.
        stack: bytes per thread in local memory: spilled registers and the like.
        shared: bytes per program, those asked for at launch included.
    """

    registers: int
    stack: int
    shared: int


def resources_of(kernel: Any, folder: Path) -> Resources:
    """Read the resources of a compiled kernel, leaving its cubin in ``folder``."""
    if not CUOBJDUMP.exists():
        pytest.skip(f"this Triton has no {CUOBJDUMP.name}")
    cubin = folder / f"{kernel.name}.cubin"
    cubin.write_bytes(kernel.asm["cubin"])
    command = [str(CUOBJDUMP), "-res-usage", str(cubin)]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", report)
    assert found, report
    registers, stack, local = map(int, found.groups())
    return Resources(registers, stack + local, kernel.metadata.shared)
