"""Check that what an NVIDIA GPU needs is installed. Each problem is one message with its remedy.

Importing this module loads nothing heavy; only :func:`import_problem` does.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util

from vllm_ascend_spec import versions
from vllm_ascend_spec.devices import imports

DRIVER = "libcuda.so.1"
KERNELS = "vllm._C_stable_libtorch"
# Version suffixes of PyTorch's builds for other devices.
OTHER_BUILDS = ("cpu", "rocm", "xpu")
INSTALL = "in a checkout and an environment of its own, pip install '.[cuda]'"
ON_THE_CPU = "VLLM_ASCEND_SPEC_DEVICE=cpu with a CPU build of vLLM"


def host_problem() -> str | None:
    """Return what is missing or incompatible, without importing anything; None if nothing."""
    if versions.is_cpu_build():
        return (
            "An NVIDIA GPU needs vLLM for CUDA, but the installed one is for a CPU. "
            f"Remedy: {INSTALL}, or leave VLLM_ASCEND_SPEC_DEVICE unset."
        )
    torch = versions.installed_version("torch") or ""
    if torch.partition("+")[2].startswith(OTHER_BUILDS):
        return f"An NVIDIA GPU needs PyTorch for CUDA, not torch {torch}. Remedy: {INSTALL}."
    if not has_driver():
        return (
            f"An NVIDIA GPU needs its driver, and {DRIVER} cannot be loaded. Remedy: install the "
            "driver; start a container with its GPUs (docker run --gpus all); or set "
            f"{ON_THE_CPU}."
        )
    if importlib.util.find_spec("triton") is None:
        return (
            "Speculative decoding on an NVIDIA GPU needs Triton, which comes with PyTorch for "
            f"CUDA and is not installed. Remedy: {INSTALL}."
        )
    return None


def has_driver() -> bool:
    """Tell whether the driver's library can be loaded; this touches no GPU."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


@functools.cache
def import_problem() -> str | None:
    """Return why vLLM's kernels for CUDA cannot be imported, or None."""
    return _told(imports.why_not("torch", KERNELS))


def import_problem_elsewhere() -> str | None:
    """Run :func:`import_problem` in a subprocess."""
    return _told(imports.why_not_elsewhere("torch", KERNELS))


def _told(reason: str | None) -> str | None:
    return reason and (
        f"vLLM's kernels for CUDA cannot be imported: {reason}. "
        f"Remedy: the PyTorch that this vLLM was built with, {INSTALL}."
    )
