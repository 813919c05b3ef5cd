"""Skip marks that give their reason."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.devices import cpu, cuda, npu
from vllm_ascend_spec.upstream import limits

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
