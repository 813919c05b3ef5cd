"""Hook the import of torch_npu; runs at every start of Python, by npu_sim.pth.

Whoever imports torch_npu, torch itself through its entry points included, first gets the fake
CANN loaded and afterwards the simulated device installed. Nothing of PyTorch is imported here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

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


sys.meta_path.insert(0, TorchNpuFinder())
