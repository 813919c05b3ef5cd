"""Which backend runs an op, and the op's place in ``torch.ops.vllm_ascend_spec``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from vllm_ascend_spec.errors import BackendUnavailableError

NAMESPACE = "vllm_ascend_spec"
# Best first; an op runs the first of these that it has.
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
        """Define ``torch.ops.vllm_ascend_spec.<name>``: ``default`` runs it, ``fake`` shapes it."""
        _library.define(f"{self.name}{self.schema}")
        _library.impl(self.name, default, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", fake, lib=_library)
        return self

    def backend(self, name: str | None, device: torch.device) -> Callable[..., Any]:
        """Return the function of backend ``name``, or of the best one for ``device``.

        Raises:
            BackendUnavailableError: ``name`` is not a backend of this op.
        """
        return _load(self, name, device.type)


@functools.cache
def _load(op: Op, name: str | None, device_type: str) -> Callable[..., Any]:
    if name is None:
        name = next(n for n in PREFERENCE.get(device_type, ANY_DEVICE) if n in op.backends)
    if name not in op.backends:
        raise BackendUnavailableError(
            f"{op.name} has no backend {name!r}; this release has: {', '.join(op.backends)}"
        )
    module = importlib.import_module(f"vllm_ascend_spec.ops.{op.name}.{name}")
    return getattr(module, op.name)
