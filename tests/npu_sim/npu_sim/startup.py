"""Hook the import of torch_npu; runs at every start of Python, by npu_sim.pth.

Whoever imports torch_npu, torch itself through its entry points included, first gets the fake
CANN loaded and afterwards the simulated device installed. Nothing of PyTorch is imported here.

With `NPU_SIM=0`, or `TORCH_DEVICE_BACKEND_AUTOLOAD=0`, there is no torch_npu in the process at all,
which is then a plain CPU's: the same environment serves for comparisons.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from npu_sim.fakes import FakeFinder

TARGET = "torch_npu"


class SimulatingLoader(Loader):
    """Load torch_npu as its own loader does, between two steps of the simulator."""

    def __init__(self, own: Loader) -> None:
        self.own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the module's own loader make it."""
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load the fake CANN, then torch_npu, then the simulated device."""
        from npu_sim import bootstrap

        bootstrap.before_torch_npu()
        self.own.exec_module(module)
        bootstrap.after_torch_npu()


class TorchNpuFinder(MetaPathFinder):
    """Find torch_npu where it is, and put the simulator's loader around its own."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for torch_npu only."""
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = SimulatingLoader(spec.loader)
        return spec


class PathFinderWithout(PathFinder):
    """Finds what is installed, except torch_npu."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module on the path."""
        return None if name == TARGET else super().find_spec(name, path, target)


def switched_on() -> bool:
    """Tell whether this process shall have a simulated NPU."""
    autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    return os.environ.get("NPU_SIM", autoload) != "0"


def install() -> None:
    """Put the finders in place."""
    sys.meta_path.insert(0, FakeFinder())
    if switched_on():
        # Triton, which vLLM imports even before torch, decides at its import.
        os.environ.setdefault("TRITON_INTERPRET", "1")
        sys.meta_path.insert(0, TorchNpuFinder())
        return
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # or torch would miss it
    sys.meta_path[:] = [
        PathFinderWithout if finder is PathFinder else finder for finder in sys.meta_path
    ]


install()
