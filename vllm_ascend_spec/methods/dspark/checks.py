"""Checks of method ``dspark``: which draft loops have its sequential head."""

from __future__ import annotations

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError


def check_draft_loop(request: SpecInput) -> None:
    """Refuse vLLM's own draft loop, which would leave the Markov head out.

    Raises:
        ConfigError: it is asked for on CPU or CUDA.
    """
    device = request.engine.device
    if request.options.draft_loop == "stock" and device is not None and device.family == "vllm":
        raise ConfigError(
            "additional_config.ascend_spec.draft_loop",
            "stock",
            "not possible with method 'dspark': vLLM's model runner V1 has no loop for it; "
            "valid: 'auto', 'ours'",
        )
