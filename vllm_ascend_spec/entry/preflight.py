"""Check a command line or an ``LLM()`` call before anything expensive starts.

``check``, ``vllm serve`` and ``LLM()`` all call :func:`resolve_engine`, so that what the first says
is what the others do.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, TypeGuard

from vllm_ascend_spec.config import preflight
from vllm_ascend_spec.config.engine import Engine
from vllm_ascend_spec.config.resolved import Speculation
from vllm_ascend_spec.entry.folders import check_folders
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.methods.registry import all_methods


def resolve_engine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = preflight.NOTHING,
    engine: Engine | None = None,
) -> Speculation | None:
    """Check everything that can be checked without loading a model, with all methods there are.

    Args:
        model: the target, a folder or a hub's name.
        speculative_config: as given by the person; None for no speculation.
        additional_config: as given by the person.
        engine: other options that matter.

    Returns:
        What it comes to; None without speculation.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    found = preflight.resolve_engine(
        model, speculative_config, additional_config, engine, methods=all_methods()
    )
    # Last: what was typed wrong is said before what is wrong with the machine.
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


def is_here(engine: Engine | None) -> TypeGuard[Engine]:
    """Tell whether the engine would run on this machine; `check` may ask of another device."""
    return engine is not None and (engine.device is None or engine.device.find())
