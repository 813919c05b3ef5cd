"""Fakes for what vllm-ascend imports but a machine without CANN cannot have.

They are found like any module, by one finder; the modules themselves are not on disk. A function
of a fake that is called raises and says its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Packages of kernels; a function without a reference exists and cannot be called.
EMPTY_PACKAGES = ("fla_npu",)
# Registers shapes of operators that torchvision's build for CUDA has not beside torch for the CPU;
# without this file torchvision's transforms work, and so does transformers, on the CPU too.
EMPTY_MODULES = ("torchvision._meta_registrations",)
CUSTOM_OPS = "vllm_ascend.vllm_ascend_C"


class Fake(ModuleType):
    """A module whose functions exist and cannot be called."""

    __path__: list[str] = []  # noqa: RUF012  (a package to the import system)

    def __getattr__(self, name: str) -> Any:
        """Return a function that raises, for any name that does not belong to the machinery."""
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"npu_sim: {self.__name__}.{name} is not simulated")

        missing.__name__ = name
        return missing


class FakeFinder(MetaPathFinder, Loader):
    """Finds the fakes."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the fakes only."""
        if name.split(".", maxsplit=1)[0] in EMPTY_PACKAGES:
            return ModuleSpec(name, self, is_package=True)
        if name == CUSTOM_OPS or name in EMPTY_MODULES or name in BUILDERS:
            return ModuleSpec(name, self, is_package=name == "acl")
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make a module with functions that raise where a whole package is missing."""
        return Fake(spec.name) if spec.name.split(".")[0] in EMPTY_PACKAGES else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module, or define vllm-ascend's ops where its extension would."""
        if module.__name__ == CUSTOM_OPS:
            from npu_sim import bootstrap

            bootstrap.install_custom_ops()
        elif module.__name__ in BUILDERS:
            BUILDERS[module.__name__](module)


def _acl(module: ModuleType) -> None:
    """Fill `acl`, CANN's own Python binding."""
    from acl import rt

    module.rt = rt  # type: ignore[attr-defined]


def _acl_rt(module: ModuleType) -> None:
    """Fill `acl.rt` with what vllm-ascend calls."""

    import ctypes

    def memcpy(into: int, capacity: int, source: int, count: int, kind: int) -> int:
        ctypes.memmove(into, source, min(count, capacity))
        return 0

    module.memcpy = memcpy  # type: ignore[attr-defined]


def _fla_npu(module: ModuleType) -> None:
    """Fill `fla_npu.ops.ascendc` with the functions that have references, as device ops."""
    from npu_sim.bootstrap import negative_control
    from npu_sim.launch import as_device_op
    from npu_sim.references import load_all

    for name, function in load_all().items():
        namespace, _, short = name.partition("::")
        if namespace == "fla_npu":
            setattr(module, short, as_device_op(name, negative_control(name, function)))


BUILDERS: dict[str, Callable[[ModuleType], None]] = {
    "acl": _acl,
    "acl.rt": _acl_rt,
    "fla_npu.ops.ascendc": _fla_npu,
}
