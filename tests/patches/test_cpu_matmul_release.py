"""Handlers of linear layers that end while PyTorch traces are freed once it does not."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode, in_kernel_invocation_manager
from vllm.platforms import current_platform

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import cpu_matmul_release as patch

pytestmark = requires_cpu_build

# What is in force while PyTorch traces, and what the stock fault says there; "" for no fault.
TRACING: dict[str, tuple[list[Callable[[], Any]], str]] = {
    "fake tensors": ([FakeTensorMode], "FakeTensorMode"),
    "kernels for shapes": (
        [lambda: in_kernel_invocation_manager(FakeTensorMode())],
        "meta tensors",
    ),
    "dispatcher in Python": ([enable_python_dispatcher], ""),
    "both": (
        [lambda: in_kernel_invocation_manager(FakeTensorMode()), enable_python_dispatcher],
        "recursion",
    ),
}


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pointers of the handlers that were freed, of those that :func:`end_one` makes."""
    current_platform.import_kernels()
    gc.collect()
    return []


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went wrong where nobody could be told."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: found.append(str(args.exc_value)))
    return found


def end_one(freed: list[int], states: list[Callable[[], Any]]) -> int:
    """Have the collector find a handler in some states, and return the handler's pointer."""
    import torch
    from vllm._custom_ops import create_onednn_mm

    handler = create_onednn_mm(torch.ones(16, 32), 16)
    pointer = int(handler.handler_tensor.item())
    release = handler.dtor

    def dtor(pointer: int) -> None:
        freed.append(pointer)
        release(pointer)

    handler.dtor = dtor
    handler.itself = handler
    del handler
    with ExitStack() as entered:
        for state in states:
            entered.enter_context(state())
        gc.collect()
    return pointer


@pytest.mark.parametrize("name", TRACING)
def test_stock_fault_and_patch(
    name: str, freed: list[int], errors: list[str], take_out: TakeOut
) -> None:
    states, message = TRACING[name]
    take_out(patch)
    pointer = end_one(freed, states)
    if message:
        assert freed == []
        assert message in errors.pop()
    else:
        assert freed == [pointer]
    freed.clear()
    patch.apply()
    first = end_one(freed, states)
    assert freed == []
    second = end_one(freed, states)
    # As the second one was made.
    assert freed == [first]
    patch.free_waiting()
    assert freed == [first, second]
    assert errors == []


def test_otherwise_they_are_freed_at_once(freed: list[int], take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert end_one(freed, []) == freed[0]
    assert len(freed) == 1
