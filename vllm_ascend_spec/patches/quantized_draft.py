"""A quantized draft ends the engine.

Why: vLLM makes a draft's config with a function as its ``hf_overrides``
(vllm/config/speculative.py:SpeculativeConfig.__post_init__). If a checkpoint's config.json does not
name its quantization, vLLM reads it from ``hf_overrides``, which must then be a dict
(vllm/model_executor/model_loader/weight_utils.py:get_quant_config): ``hf_overrides must be a
dict``.
How: a config whose overrides are a function is read as one without overrides.
Until: vLLM 0.30 does so itself.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    from vllm.config import ModelConfig

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.model_executor.model_loader import weight_utils

    stock = weight_utils.get_quant_config

    def get_quant_config(model_config: ModelConfig, *args: Any, **kwargs: Any) -> Any:
        if callable(model_config.hf_overrides):
            model_config = copy.copy(model_config)
            model_config.hf_overrides = {}
        return stock(model_config, *args, **kwargs)

    _patches.set(weight_utils, "get_quant_config", get_quant_config)
