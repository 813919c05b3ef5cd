"""A search for kernels passes objects that have any attribute one asks for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import kernel_search as patch

# The search asks PyTorch for what it deprecates, too.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class AnyName:
    """As llvmlite's ``ffi.lib``."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return print


def test_stock_fault_and_patch(take_out: TakeOut, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.triton_utils.dispatcher import KernelOverride, _rebind_kernels

    module: Any = ModuleType("has_any_name")
    module.lib, module.kernel = AnyName(), lambda: None
    monkeypatch.setitem(sys.modules, "has_any_name", module)
    wrapper = KernelOverride(module.kernel, lambda: None)
    found = [(module.kernel, wrapper)]
    take_out(patch)
    with pytest.raises(AttributeError, match="no attribute 'get'"):
        _rebind_kernels(found)
    patch.apply()
    _rebind_kernels(found)
    assert module.kernel is wrapper
