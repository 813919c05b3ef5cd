"""Accept the keyword arguments that ``LLM(...)`` had before ``speculative_config``.

Why: scripts from guides use them, and ``EngineArgs`` raises a TypeError.
How: ``EngineArgs`` and ``AsyncEngineArgs`` are built with today's names instead, which one line of
the log gives. vLLM loads general plugins only after an ``EngineArgs`` has been built, so the hook
is installed when the platform is chosen, before vLLM has defined the two classes: they are wrapped
as soon as Python has imported their module.
Until: never; this is our own feature, hooked in where vLLM has no hook.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from vllm_ascend_spec.legacy.names import taken, told
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.patches.patching import Patches

MODULE = "vllm.engine.arg_utils"
CLASSES = ("EngineArgs", "AsyncEngineArgs")

_patches = Patches()


class Watcher(MetaPathFinder):
    """Wraps the classes as soon as their module has been imported."""

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the other finders find the module, and wrap the classes once it is executed."""
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _wrap(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_watcher = Watcher()


def revert() -> None:
    """Undo the hook."""
    _patches.revert()
    if _watcher in sys.meta_path:
        sys.meta_path.remove(_watcher)


def apply() -> None:
    """Install the hook once: now, or as soon as vLLM has defined the classes."""
    if _patches or _watcher in sys.meta_path:
        return
    module = sys.modules.get(MODULE)
    if module is None:
        sys.meta_path.insert(0, _watcher)
    elif all(hasattr(module, name) for name in CLASSES):
        _wrap(module)


def _wrap(module: ModuleType) -> None:
    for name in CLASSES:
        owner = getattr(module, name)
        _patches.set(owner, "__init__", _translating(owner.__init__))


def _translating(stock: Callable[..., None]) -> Callable[..., None]:
    @wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        # The model is the first field.
        first = {"model": args[0]} if args and "model" not in kwargs else {}
        values = {**kwargs, **first}
        if (done := taken(values, as_flags=False)) is not None:
            log_once(logging.WARNING, told(*done, as_flags=False))
        stock(self, *args, **{name: v for name, v in values.items() if name not in first})

    return init
