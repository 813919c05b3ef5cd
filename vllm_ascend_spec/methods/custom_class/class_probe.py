"""Import the user's module and check the class of method ``custom_class``.

Run as a file, ``python class_probe.py CLASS ANSWER SEARCH_PATH`` writes the problem as JSON to the
file ANSWER. It uses only the standard library, because the search path may lack this package.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORM = "valid: 'package.module.Class', an importable class with a method propose"
# Arguments with which vLLM calls it (vllm/v1/worker/gpu_model_runner.py:
# GPUModelRunner.propose_draft_token_ids).
ARGUMENTS = ("sampled_token_ids", "num_tokens_no_spec", "token_ids_cpu")
KEYWORDS = ("slot_mappings",)


def problem(path: str) -> str | None:
    """Return why the class cannot be used, or None."""
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing the user's module may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return f"cannot import {module_name} ({why}); its folder belongs in PYTHONPATH"
    if not hasattr(module, name):
        return f"module {module_name} has no {name}; {FORM}"
    return problem_of(getattr(module, name))


def problem_of(found: Any) -> str | None:
    """Return why ``found`` cannot be used, or None."""
    if not callable(found) or inspect.isbuiltin(found):
        return f"is {type(found).__name__}, no class; {FORM}"
    if not _takes(found, 1):
        return "cannot be made from the engine's VllmConfig alone"
    if not isinstance(found, type):
        return None  # a function that makes the proposer; vLLM checks what it returns
    propose = getattr(found, "propose", None)
    if not callable(propose):
        return "has no method propose"
    bound = isinstance(inspect.getattr_static(found, "propose"), staticmethod | classmethod)
    if not _takes(propose, len(ARGUMENTS) + (not bound), KEYWORDS):
        keywords = ", ".join(f"{name}=…" for name in KEYWORDS)
        return f"its propose cannot be called as propose({', '.join(ARGUMENTS)}, {keywords})"
    return None


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


if __name__ == "__main__":
    class_path, answer, search_path = sys.argv[1:]
    sys.path[:] = json.loads(search_path)
    sys.argv[1:] = []
    found = problem(class_path)
    Path(answer).write_text(json.dumps(found))
    # Threads that the module started would keep the process alive.
    os._exit(0)
