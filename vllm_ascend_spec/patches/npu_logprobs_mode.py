"""``--logprobs-mode`` on the NPU.

Why: vllm-ascend 0.30.0rc2 (vllm_ascend/worker/model_runner_v1.py:NPUModelRunner.__init__) builds
its sampler without the mode, so the mode is ``raw_logprobs`` whatever was asked for. Steps without
drafts would return other logprobs than steps with drafts.
How: the sampler that the runner builds is given the model's mode.
Until: vllm-ascend passes the mode; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.config import get_current_vllm_config
    from vllm_ascend.worker import model_runner_v1 as stock

    sampler_class = stock.AscendSampler

    def make_sampler(*args: Any, **kwargs: Any) -> Any:
        if not args and "logprobs_mode" not in kwargs:
            kwargs["logprobs_mode"] = get_current_vllm_config().model_config.logprobs_mode
        return sampler_class(*args, **kwargs)

    _patches.set(stock, "AscendSampler", make_sampler)
