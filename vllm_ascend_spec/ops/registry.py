"""Choose the backend of an op, and register the op in ``torch.ops.vllm_ascend_spec``."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.log import log_once

NAMESPACE = "vllm_ascend_spec"
# Best first; an op runs the first of these that it has and that can run.
PREFERENCE: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu", "reference"),
    "cuda": ("triton", "reference"),
    "npu": ("ascendc", "triton", "reference"),
}
ANY_DEVICE = ("reference",)

_library = torch.library.Library(NAMESPACE, "DEF")


@dataclass(frozen=True)
class Op:
    """An op and the backends that exist for it.

    Attributes:
        name: name of the op, of its folder, and of the function in each backend's file.
        schema: arguments and results in PyTorch's schema language.
        backends: names of the backends this release has.
    """

    name: str
    schema: str
    backends: tuple[str, ...]

    def register(self, default: Callable[..., Any], fake: Callable[..., Any]) -> Op:
        """Define ``torch.ops.vllm_ascend_spec.<name>``: ``default`` runs it, ``fake`` traces it."""
        _library.define(f"{self.name}{self.schema}")
        _library.impl(self.name, default, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", fake, lib=_library)
        return self

    def backend(self, name: str | None, device: torch.device) -> Callable[..., Any]:
        """Return the function of backend ``name``, or of the best one for ``device``.

        Without a name, a backend that exists but cannot run is skipped, with one logged line.

        Raises:
            BackendUnavailableError: backend ``name`` does not exist or cannot run on ``device``.
        """
        return _load(self, name, device.type)

    def status(self, device_type: str) -> dict[str, str]:
        """Return each backend's state on a device: ``ready``, or why it cannot run; best first."""
        best = [name for name in PREFERENCE.get(device_type, ANY_DEVICE) if name in self.backends]
        names = dict.fromkeys((*best, *self.backends))
        return {name: _problem_of(self, name, device_type) or "ready" for name in names}

    def choice(self, device_type: str, name: str | None = None) -> tuple[str, dict[str, str]]:
        """Return the backend that runs on a device, and why each better one does not.

        Args:
            device_type: ``cpu``, ``cuda`` or ``npu``.
            name: name of the requested backend; None for the best one.

        Raises:
            BackendUnavailableError: there is none.
        """
        passed_over: dict[str, str] = {}
        wanted = PREFERENCE.get(device_type, ANY_DEVICE) if name is None else (name,)
        for backend in (backend for backend in wanted if backend in self.backends):
            if not (problem := _problem_of(self, backend, device_type)):
                return backend, passed_over
            passed_over[backend] = problem
        raise BackendUnavailableError(f"{self.name} has no backend for {device_type}")


@functools.cache
def _load(op: Op, name: str | None, device_type: str) -> Callable[..., Any]:
    if name is None:
        name = _best(op, device_type)
    elif name not in op.backends:
        raise BackendUnavailableError(
            f"{op.name} has no backend {name!r}; this release has: {', '.join(op.backends)}"
        )
    elif problem := _problem_of(op, name, device_type):
        raise BackendUnavailableError(f"{op.name}: backend {name!r} cannot run here: {problem}")
    function: Callable[..., Any] = getattr(_module(op, name), op.name)
    return function


def _best(op: Op, device_type: str) -> str:
    name, passed_over = op.choice(device_type)
    for problem in passed_over.values():
        log_once(logging.WARNING, f"{problem}; the next backend is used")
    return name


def _problem_of(op: Op, name: str, device_type: str) -> str | None:
    """Return why a backend cannot run on a device, or None; not all modules have ``problem``."""
    try:
        module = _module(op, name)
    except ImportError as error:
        return f"backend {name!r} cannot be imported: {error}"
    check = getattr(module, "problem", None)
    return None if check is None else check(device_type)


def _module(op: Op, name: str) -> ModuleType:
    return importlib.import_module(f"vllm_ascend_spec.ops.{op.name}.{name}")
