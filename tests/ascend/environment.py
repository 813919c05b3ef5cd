"""The environment of an engine on the NPU, and of the same engine on the CPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
REASON = "needs vllm-ascend, and an NPU or the simulated one: make test-npu-sim"
IS_HERE = importlib.util.find_spec("vllm_ascend") is not None
COMMON = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "TRITON_INTERPRET": "1",
    # As vLLM sets it, but before torch_npu reads it: nothing that is compiled here needs processes.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # What one engine's torch_npu has compiled another one cannot load.
    "VLLM_DISABLE_COMPILE_CACHE": "1",
}
NPU = {
    **COMMON,
    "VLLM_ASCEND_SPEC_DEVICE": "npu",
    # The results of vLLM's all_reduce and of vllm-ascend's rotary op are their inputs on an NPU,
    # which PyTorch refuses where CI is set, and elsewhere warns of.
    "TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING": "0",
}
# Of an environment with another version, see .ci/setup-version: what it was set up beside.
BASE = Path(sys.prefix, "base")
IS_SIMULATED = importlib.util.find_spec("npu_sim") is not None
if IS_SIMULATED:
    # The kernels' source; on silicon what was built of it.
    NPU["VLLM_ASCEND_SPEC_ASCENDC"] = "tests.ascend.kernels:library"
# "0" if the emulator is not to check the hardware's rules.
KERNEL_CHECKS = "TESTS_KERNEL_CHECKS"
CPU = {
    **COMMON,
    "VLLM_ASCEND_SPEC_DEVICE": "cpu",
    "VLLM_PLUGINS": "ascend_spec",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}
# The CPU of this environment, which has torchvision: vLLM imports it for Qwen3.5 and Qwen-VL.
CPU_HERE = {**CPU, "NPU_SIM": "0"}


def python_of(environment: Mapping[str, str]) -> str:
    """Return the Python of an engine: vLLM 0.23's kernels for a CPU want another PyTorch."""
    is_elsewhere = environment.items() >= CPU.items() and "NPU_SIM" not in environment
    return str(BASE / "bin" / "python") if is_elsewhere and BASE.exists() else sys.executable
