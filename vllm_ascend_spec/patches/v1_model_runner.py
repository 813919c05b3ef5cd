"""Speculative decoding on model runner V1, where vLLM would choose V2.

Why: our runner builds on V1's. On a GPU vLLM 0.30 chooses V2 for EAGLE and MTP unless the variable
``VLLM_USE_V2_MODEL_RUNNER`` says otherwise (vllm/config/vllm.py:
VllmConfig.use_v2_model_runner), and that variable would change the runner of every engine in the
process, those without speculation too.
How: the property returns False for a configuration with speculation. If an option needs V2, or a
user asks for V2 by the variable, vLLM's answer stands, and the platform refuses that option by
name.
Until: this package has a runner for V2.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_ascend_spec.config.model_runner import VARIABLE
from vllm_ascend_spec.patches.patching import Patches
from vllm_ascend_spec.upstream.model_runner import options_of_v2

if TYPE_CHECKING:
    from vllm.config import VllmConfig

PROPERTY = "use_v2_model_runner"
_patches = Patches()
revert = _patches.revert


class Demand(NamedTuple):
    """An option or variable that forces an engine onto V2, whatever else is set.

    Attributes:
        option: name of the option or variable.
        value: the given value.
    """

    option: str
    value: Any


def find_demand(vllm_config: VllmConfig) -> Demand | None:
    """Return what forces model runner V2, or None."""
    from vllm import envs

    if envs.VLLM_USE_V2_MODEL_RUNNER:
        return Demand(VARIABLE, os.environ.get(VARIABLE))
    given = (Demand(*pair) for pair in options_of_v2(vllm_config).items())
    return next((demand for demand in given if demand.value is not None), None)


def stock_choice(vllm_config: VllmConfig) -> bool:
    """Return whether vLLM alone would choose V2."""
    now = type(vllm_config).use_v2_model_runner
    stock = now.stock if isinstance(now, _ForSpeculation) else now
    return bool(stock.__get__(vllm_config))


class _ForSpeculation(property):
    """Replaces vLLM's property.

    Args:
        stock: vLLM's property.
    """

    def __init__(self, stock: property) -> None:
        super().__init__(self.choose)
        self.stock = stock

    def choose(self, vllm_config: VllmConfig) -> bool:
        """Return whether an engine runs on V2."""
        if vllm_config.speculative_config is None or find_demand(vllm_config) is not None:
            return bool(self.stock.__get__(vllm_config))
        return False


def apply() -> None:
    """Install the patch once."""
    if not _patches:
        from vllm.config import VllmConfig

        _patches.set(VllmConfig, PROPERTY, _ForSpeculation(VllmConfig.use_v2_model_runner))
