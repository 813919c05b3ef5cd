"""What an engine loads while a test runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# What is loaded: the module, and the function in it that does so.
LOADERS = {
    "engine": ("vllm.v1.engine.core", "EngineCore.__init__"),
    "executor": ("vllm.v1.executor.abstract", "Executor.__init__"),
    "worker": ("vllm.v1.worker.cpu_worker", "CPUWorker.init_device"),
    "model": ("vllm.model_executor.model_loader.base_loader", "BaseModelLoader.load_model"),
    "weights": ("vllm.model_executor.model_loader.weight_utils", "safe_open"),
}


@contextmanager
def watch_loads() -> Iterator[set[str]]:
    """Yield the names, of those in LOADERS, of what has been loaded in this process."""
    loaded: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for name, (module, function) in LOADERS.items():
            *owner, attribute = function.split(".")
            holder: Any = importlib.import_module(module)
            for part in owner:
                holder = getattr(holder, part)
            patch.setattr(holder, attribute, _noting(name, getattr(holder, attribute), loaded))
        yield loaded


def _noting(name: str, function: Any, loaded: set[str]) -> Any:
    def noting(*args: Any, **kwargs: Any) -> Any:
        loaded.add(name)
        return function(*args, **kwargs)

    return noting
