"""Skip marks that give their reason."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

import pytest

from vllm_ascend_spec.devices import cpu, cuda, npu
from vllm_ascend_spec.upstream import limits
from vllm_ascend_spec.upstream.ranges import vllm_is

requires_npu = pytest.mark.skipif(not npu.find(), reason="needs an Ascend NPU (/dev/davinci*)")
requires_cuda = pytest.mark.skipif(not cuda.find(), reason="needs an NVIDIA GPU and a CUDA vLLM")
requires_cpu_build = pytest.mark.skipif(not cpu.DEVICE.find(), reason="needs a CPU build of vLLM")


def unless(limit: str | None) -> pytest.MarkDecorator:
    """Skip what a limit of the installed version (upstream/limits.py) keeps from working."""
    return pytest.mark.skipif(limit is not None, reason=f"not possible with {limit}")


requires_mla = unless(limits.NO_MLA_ON_CPU)
requires_hidden_states = unless(limits.WITHOUT_METHODS.get(("extract_hidden_states", "vllm")))
# vLLM's code of some targets imports it; .venv has none, see hooks/multimodal.py.
requires_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None,
    reason="needs torchvision; tests/ascend runs it where that is",
)
requires_lora = pytest.mark.skipif(
    vllm_is("<0.30"), reason="vLLM 0.23 pins memory for adapters, without speculation too"
)


def names_a_limit(refusal: str) -> bool:
    """Tell whether an error names what the installed version cannot."""
    known = (*limits.EVERY, *limits.WITHOUT_OPTIONS.values())
    return any(limit in refusal for limit in known)


def skip_without(options: Iterable[str]) -> None:
    """Skip a test of options that the installed version does not have."""
    for option in options:
        if (why := limits.WITHOUT_OPTIONS.get(option)) is not None:
            pytest.skip(f"{option}: not possible with {why}")
