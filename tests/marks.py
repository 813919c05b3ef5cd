"""Skip marks that give their reason."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from vllm_ascend_spec.devices import cpu, cuda, npu
from vllm_ascend_spec.upstream import limits
from vllm_ascend_spec.upstream.ranges import vllm_is

requires_npu = pytest.mark.skipif(not npu.find(), reason="needs an Ascend NPU (/dev/davinci*)")
requires_cuda = pytest.mark.skipif(not cuda.find(), reason="needs an NVIDIA GPU and a CUDA vLLM")
requires_cpu_build = pytest.mark.skipif(not cpu.DEVICE.find(), reason="needs a CPU build of vLLM")
# Where nothing of ours refuses it, or another process does.
requires_mla = pytest.mark.skipif(
    limits.NO_MLA_ON_CPU is not None, reason=f"not possible with {limits.NO_MLA_ON_CPU}"
)
NO_STATES = limits.WITHOUT_METHODS.get(("extract_hidden_states", "vllm"))
requires_hidden_states = pytest.mark.skipif(
    NO_STATES is not None, reason=f"not possible with {NO_STATES}"
)
requires_lora = pytest.mark.skipif(
    vllm_is("<0.30"), reason="vLLM 0.23 pins memory for adapters, without speculation too"
)


def skip_without(options: Iterable[str]) -> None:
    """Skip a test of options that the installed version does not have."""
    for option in options:
        if (why := limits.WITHOUT_OPTIONS.get(option)) is not None:
            pytest.skip(f"{option}: not possible with {why}")
