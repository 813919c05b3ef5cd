"""Checks of the class that method ``custom_class`` is given. Imports the person's module."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.errors import ConfigError

OPTION = "speculative_config.model"
FORM = "valid: 'package.module.Class', importable, of a class with the method propose"
# What vLLM calls it with (v1/worker/gpu_model_runner.py, propose_draft_token_ids).
ARGUMENTS = ("sampled_token_ids", "num_tokens_no_spec", "token_ids_cpu")
KEYWORDS = ("slot_mappings",)


def check_custom_class(spec: Mapping[str, Any]) -> None:
    """Check that the class is there and can be called as vLLM calls it.

    Raises:
        ConfigError: naming what is wrong with it.
    """
    path = spec["model"]
    if not isinstance(path, str) or not _is_dotted(path):
        raise ConfigError(OPTION, path, f"is no path of a class; {FORM}")
    found = _import(path)
    if not callable(found):
        raise ConfigError(OPTION, path, f"is {type(found).__name__}, no class; {FORM}")
    if not _takes(found, 1):
        raise ConfigError(OPTION, path, "cannot be made from the engine's VllmConfig alone")
    if not isinstance(found, type):
        return  # a function that makes the proposer; vLLM looks at what it returns
    propose = getattr(found, "propose", None)
    if not callable(propose):
        raise ConfigError(OPTION, path, "has no method propose")
    bound = isinstance(inspect.getattr_static(found, "propose"), staticmethod | classmethod)
    if not _takes(propose, len(ARGUMENTS) + (not bound), KEYWORDS):
        raise ConfigError(
            OPTION,
            path,
            f"its propose cannot be called as propose({', '.join(ARGUMENTS)}, "
            f"{', '.join(f'{name}=…' for name in KEYWORDS)})",
        )


def _is_dotted(path: str) -> bool:
    return "." in path and all(part.isidentifier() for part in path.split("."))


def _import(path: str) -> Any:
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a person's module does when it is imported
        why = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise ConfigError(
            OPTION, path, f"cannot import {module_name} ({why}); its folder belongs in PYTHONPATH"
        ) from error
    if not hasattr(module, name):
        raise ConfigError(OPTION, path, f"module {module_name} has no {name}; {FORM}")
    return getattr(module, name)


def _takes(function: Callable[..., Any], count: int, keywords: tuple[str, ...] = ()) -> bool:
    """Tell whether a call with ``count`` arguments and ``keywords`` fits; True if unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return True
    try:
        signature.bind(*range(count), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True
