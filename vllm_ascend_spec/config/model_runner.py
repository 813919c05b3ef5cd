"""Check that vLLM uses model runner V1, which this package builds on."""

from __future__ import annotations

import os

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError

VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
NEEDS_V2 = "asks for model runner V2, and vllm-ascend-spec speculates on V1; leave it out"


def check_model_runner(request: SpecInput) -> None:
    """Refuse model runner V2 if the user has chosen it.

    Raises:
        ConfigError: naming the variable.
    """
    value = os.environ.get(VARIABLE, "")
    # As vLLM reads it: a number, 0 for V1.
    if value.strip().isdigit() and int(value) != 0:
        raise ConfigError(VARIABLE, value, NEEDS_V2)
