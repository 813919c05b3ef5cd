"""Check a command line or an ``LLM()`` call before anything expensive starts.

``check``, ``vllm serve`` and ``LLM()`` all call :func:`resolve_engine`, so that ``check`` reports
exactly what the others do.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, TypeGuard

from vllm_ascend_spec.config import preflight
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.hooks.writable_dirs import check_folders
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.methods.registry import all_methods


def resolve_engine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = preflight.NOTHING,
    engine: EngineOptions | None = None,
) -> SpecConfig | None:
    """Check everything that can be checked without loading a model, with all known methods.

    Args:
        model: the target, a folder or a hub name.
        speculative_config: value given by the user; None for no speculation.
        additional_config: value given by the user.
        engine: other options that matter.

    Returns:
        The resolved speculation; None without one.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    found = preflight.resolve_engine(
        model, speculative_config, additional_config, engine, methods=all_methods()
    )
    # Last: wrong options are reported before problems of the machine.
    warnings = check_folders(engine) if is_here(engine) else ()
    if found is None:
        for warning in warnings:
            log_once(logging.WARNING, warning)
        return None
    found = replace(found, warnings=found.warnings + warnings)
    if found.verify_backend is not None:
        from vllm_ascend_spec.verification.backend import require_backend

        require_backend(found.verify_backend, found.device or "cpu")
    return found


def is_here(engine: EngineOptions | None) -> TypeGuard[EngineOptions]:
    """Tell whether the engine would run on this machine; `check` may be for another device."""
    return engine is not None and (engine.device is None or engine.device.find())
