"""Handlers of linear layers are freed while PyTorch traces."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm.platforms import current_platform

from tests.compat.mends import TakeOut
from tests.marks import requires_cpu_build
from vllm_ascend_spec.compat import cpu_matmul_release as mend

pytestmark = requires_cpu_build


def free_while_tracing(freed: list[int]) -> int:
    """Have the collector find a handler within a fake mode, and return the handler's pointer."""
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
    with FakeTensorMode():
        gc.collect()
    return pointer


def test_stock_fault_and_mend(take_out: TakeOut, monkeypatch: pytest.MonkeyPatch) -> None:
    current_platform.import_kernels()
    freed: list[int] = []
    errors: list[Any] = []
    gc.collect()
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    take_out(mend)
    free_while_tracing(freed)
    assert freed == []
    assert "FakeTensorMode" in str(errors.pop().exc_value)
    mend.apply()
    pointer = free_while_tracing(freed)
    assert freed == [pointer]
    assert errors == []
