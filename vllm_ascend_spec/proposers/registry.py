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


def proposer_class(method: str) -> Any:
    """Import and return the proposer of ``method``.

    Raises:
        ConfigError: this release has no such method.
    """
    if method not in METHODS:
        valid = ", ".join(map(repr, METHODS))
        raise ConfigError("speculative_config.method", method, f"not supported; valid: {valid}")
    module, name = METHODS[method].proposer.split(":")
    return getattr(importlib.import_module(module), name)


def create_proposer(
    vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
) -> Any:
    """Build the proposer of an engine.

    Every proposer subclasses vLLM's own of the same method, because the V1 runner asks for that
    class by ``isinstance``.
    """
    method = vllm_config.speculative_config.method
    return proposer_class(method).create(vllm_config, device, runner, options)
