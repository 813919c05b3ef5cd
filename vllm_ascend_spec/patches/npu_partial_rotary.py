"""Models without images whose heads are rotated in part, on the NPU: Qwen3.5, Qwen3-Next.

Why: vllm-ascend 0.30.0rc2 makes tables of cosines as wide as a whole head
(vllm_ascend/ops/rotary_embedding.py:set_cos_and_sin) unless the configuration has
``partial_rotary_factor`` itself. transformers 5 has it in ``rope_parameters``, so the tables do not
take what is written to them, and no engine starts, with speculation or without.
How: the configuration gets it, too.
Until: vllm-ascend reads ``rope_parameters``; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_patches = Patches()
revert = _patches.revert
FACTOR = "partial_rotary_factor"


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend.platform import NPUPlatform

    stock = NPUPlatform.check_and_update_config

    def check_and_update_config(cls: type[NPUPlatform], vllm_config: VllmConfig) -> None:
        stock.__func__(cls, vllm_config)
        model = vllm_config.model_config
        config = None if model is None else model.hf_text_config
        parameters = getattr(config, "rope_parameters", None) or {}
        if FACTOR in parameters and not hasattr(config, FACTOR):
            setattr(config, FACTOR, parameters[FACTOR])

    patched = classmethod(check_and_update_config)
    _patches.set(NPUPlatform, "check_and_update_config", patched)
