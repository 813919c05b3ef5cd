"""Skip marks that give their reason."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.devices import cpu, cuda, npu

requires_npu = pytest.mark.skipif(not npu.find(), reason="needs an Ascend NPU (/dev/davinci*)")
requires_cuda = pytest.mark.skipif(not cuda.find(), reason="needs an NVIDIA GPU and a CUDA vLLM")
requires_cpu_build = pytest.mark.skipif(not cpu.DEVICE.find(), reason="needs a CPU build of vLLM")
