"""Checks of method ``dspark``: what has no room for its sequential head."""

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


def check_argmax(request: SpecInput) -> None:
    """Refuse vLLM's local argmax: the Markov head adds to all logits of a draft.

    Raises:
        ConfigError: it is asked for.
    """
    option = "use_local_argmax_reduction"
    if request.spec.get(option):
        raise ConfigError(
            f"speculative_config.{option}",
            request.spec[option],
            "not possible with method 'dspark', whose Markov head needs all logits; leave it out",
        )
