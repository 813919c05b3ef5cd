"""Rejection-sampling kernels of vLLM 0.30 on the CPU.

Why: vLLM (vllm/v1/worker/cpu_model_runner.py:CPUModelRunner._postprocess_triton) replaces module
globals, but the dispatchers ``_rejection_greedy_sample``, ``_rejection_random_sample`` and
``_sample_recovered_tokens`` (vllm/v1/sample/rejection_sampler.py:_rejection_greedy_sample) hold the
Triton kernel in ``.kernel``. The stock sampler fails at its first verification with "Cannot inspect
kernel parameters".
How: give the dispatchers vLLM's own C++ kernels.
Until: vLLM 0.31, which registers them in ``register_triton_kernel_overrides`` of the platform;
``.kernel`` of the dispatchers is then replaced, too.
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
    from vllm.v1.sample import rejection_sampler as stock

    _patches.set_kernel(stock._rejection_greedy_sample, kernels.rejection_greedy_sample_kernel)
    _patches.set_kernel(stock._rejection_random_sample, kernels.rejection_random_sample_kernel)
    _patches.set_kernel(stock._sample_recovered_tokens, kernels.sample_recovered_tokens_kernel)
