"""Check a command line or an ``LLM()`` call before anything expensive starts.

``check``, ``vllm serve`` and ``LLM()`` all call :func:`examine`, so that ``check`` reports exactly
what the others do.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import NOTHING
from vllm_ascend_spec.config.examine import examine as examine_config
from vllm_ascend_spec.config.problems import Examined, Problems
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.hooks.writable_dirs import check_folders
from vllm_ascend_spec.methods.registry import all_methods


def examine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
) -> Examined:
    """Check everything that can be checked without loading a model, with all known methods.

    Args:
        model: the target, a folder or a hub name.
        speculative_config: value given by the user; None for no speculation.
        additional_config: value given by the user.
        engine: other options that matter.
    """
    found = examine_config(
        model, speculative_config, additional_config, engine, methods=all_methods()
    )
    # Last: wrong options are reported before problems of the machine.
    problems = Problems(found.problems)
    if is_here(engine):
        problems.run(check_folders, engine)
    speculation = found.speculation
    if speculation is not None and speculation.verify_backend is not None:
        from vllm_ascend_spec.verification.backend import require_backend

        problems.run(require_backend, speculation.verify_backend, speculation.device or "cpu")
    return found.with_problems(problems)


def resolve_engine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
) -> SpecConfig | None:
    """Return the resolved speculation, None without one; the arguments are those of ``examine``.

    Raises:
        AscendSpecError: the first problem; a ConfigError names the option, its value and what is
            valid.
    """
    return examine(model, speculative_config, additional_config, engine).resolved()


def is_here(engine: EngineOptions | None) -> TypeGuard[EngineOptions]:
    """Tell whether the engine would run on this machine; `check` may be for another device."""
    return engine is not None and (engine.device is None or engine.device.find())
