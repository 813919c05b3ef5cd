"""The kernel that lays out a DFlash head's inputs, of vLLM 0.30 on the CPU.

Why: vLLM (vllm/v1/worker/cpu_model_runner.py:CPUModelRunner._postprocess_triton) replaces module
globals, but the dispatcher (vllm/v1/spec_decode/utils.py:_copy_and_expand_dflash_inputs) holds the
Triton kernel in ``.kernel``. The first draft fails with "Cannot inspect kernel parameters".
How: give the dispatcher vLLM's own C++ kernel.
Until: vLLM 0.31, which registers it in ``register_triton_kernel_overrides`` of the platform.
"""

from __future__ import annotations

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.utils import cpu_triton_utils as kernels
    from vllm.v1.spec_decode import utils

    kernel = kernels.copy_and_expand_dflash_inputs_kernel
    _patches.set_kernel(utils._copy_and_expand_dflash_inputs, kernel)
