"""Rejection-sampling kernels of vLLM 0.30.0 on the CPU.

Why: ``CPUModelRunner._postprocess_triton`` (v1/worker/cpu_model_runner.py:108-117) replaces module
globals, but the dispatchers ``_rejection_greedy_sample``, ``_rejection_random_sample`` and
``_sample_recovered_tokens`` (v1/sample/rejection_sampler.py) hold the Triton kernel in ``.kernel``.
The stock sampler dies at its first verification with "Cannot inspect kernel parameters".
How: give the dispatchers vLLM's own C++ kernels.
Until: vLLM assigns ``.kernel`` itself, as it already does for ``_eagle_prepare_inputs_padded``
(0.32 works).
"""

from __future__ import annotations

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm.utils import cpu_triton_utils as kernels
    from vllm.v1.sample import rejection_sampler as stock

    _patches.set_kernel(stock._rejection_greedy_sample, kernels.rejection_greedy_sample_kernel)
    _patches.set_kernel(stock._rejection_random_sample, kernels.rejection_random_sample_kernel)
    _patches.set_kernel(stock._sample_recovered_tokens, kernels.sample_recovered_tokens_kernel)
