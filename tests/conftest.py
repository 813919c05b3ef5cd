"""Shared by all tests: a small, repeatable process, and skip marks that give their reason."""

from __future__ import annotations

import atexit
import os

import pytest
from hypothesis import settings

from vllm_ascend_spec.platform.select import find_cpu, find_cuda, find_npu

# Before anything imports torch or vLLM, which read these once.
for name, value in (
    ("OMP_NUM_THREADS", "1"),
    ("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),
):
    os.environ.setdefault(name, value)

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

requires_npu = pytest.mark.skipif(not find_npu(), reason="needs an Ascend NPU (/dev/davinci*)")
requires_cuda = pytest.mark.skipif(not find_cuda(), reason="needs an NVIDIA GPU and a CUDA vLLM")
requires_cpu_build = pytest.mark.skipif(not find_cpu(), reason="needs a CPU build of vLLM")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests that differ from run to run: processes could not share them out."""
    if changing := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"names of tests with an address in memory: {changing[:3]}")


@atexit.register
def end_on_the_summary() -> None:
    """Keep pytest's summary the last line: Triton's bindings report leaks as the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
