"""A draft without experts is refused where the target's experts are spread over ranks.

Why: vLLM hands ``enable_expert_parallel`` on to the draft
(vllm/config/speculative.py:SpeculativeConfig.create_draft_parallel_config) and then refuses a model
without experts (vllm/config/model.py:ModelConfig._verify_with_expert_parallelism): "Number of
experts in the model must be greater than 0". So EAGLE heads and draft models, which are dense, do
not start beside a target with ``--enable-expert-parallel``. vllm-ascend 0.30.0rc2 corrects it
itself (vllm_ascend/patch/platform/patch_speculative_config.py).
How: a draft without experts is not asked for any; the option has no effect on its layers.
Until: vLLM #56930.
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
    from vllm.config.model import ModelConfig

    stock = ModelConfig._verify_with_expert_parallelism

    def _verify_with_expert_parallelism(self: Any) -> None:
        if self.runner_type != "draft":
            stock(self)

    _patches.set(ModelConfig, "_verify_with_expert_parallelism", _verify_with_expert_parallelism)
