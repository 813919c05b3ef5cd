"""From ``speculative_config.method`` to its proposer, imported when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.methods import METHODS
from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.schema import SpecOptions


def proposer_class(method: str, device_type: str) -> Any:
    """Import and return the proposer of ``method`` for a kind of device.

    Args:
        method: ``speculative_config.method``.
        device_type: ``cpu`` or ``npu``.

    Raises:
        ConfigError: this release has no such method there.
    """
    valid = [name for name, known in METHODS.items() if device_type in known.proposers]
    if method not in valid:
        names = ", ".join(map(repr, valid)) or "none"
        raise ConfigError(
            "speculative_config.method", method, f"not supported on {device_type}; valid: {names}"
        )
    module, name = METHODS[method].proposers[device_type].split(":")
    return getattr(importlib.import_module(module), name)


def create_proposer(
    vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
) -> Any:
    """Build the proposer of an engine.

    Every proposer subclasses vLLM's or vllm-ascend's own of the same method, because their runners
    ask for that class by ``isinstance``.
    """
    method = vllm_config.speculative_config.method
    return proposer_class(method, device.type).create(vllm_config, device, runner, options)
