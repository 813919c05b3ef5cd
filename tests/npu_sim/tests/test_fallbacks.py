"""Ops for which torch_npu has no kernel: a real NPU's tensors go to the host for them and back."""

from __future__ import annotations

import pytest
import torch
from npu_sim import counters

# Each with what it writes on the device, in bytes, for four float32.
FALLBACKS = {
    "aten::mode": (lambda x: x.mode(), 4 + 8),
    "aten::fmin.out": (lambda x: torch.fmin(x, x.flip(0)), 16),
    "aten::geometric_": (lambda x: x.geometric_(0.5), 16),
}
DERIVED = {
    "aten::argmax.out": lambda x: x.argmax(),
    "aten::bitwise_or.Tensor_out": lambda x: (x > 1).bitwise_or_(x > 2),
    "aten::scatter.src_out": lambda x: x.scatter(0, torch.zeros(4, dtype=torch.int64).npu(), x),
}


@pytest.fixture
def x():
    return torch.arange(4.0).npu()


@pytest.mark.parametrize("name", FALLBACKS)
def test_a_fallback_is_two_copies_and_a_wait(x, name):
    call, written = FALLBACKS[name]
    before = counters.snapshot()
    call(x)
    seen = counters.snapshot() - before
    assert seen.syncs == {"fallback": 1}
    assert seen.events[f"fallback:{name}"] == 1
    assert name not in seen.ops
    assert seen.device_to_host[0] == 1
    assert seen.host_to_device == (1, written)


@pytest.mark.parametrize("name", FALLBACKS)
def test_a_fallback_cannot_be_captured(x, name):
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match=rf"{name}.*captured"), torch.npu.graph(graph):
        FALLBACKS[name][0](x)


def test_a_fallback_computes_what_the_cpu_computes(x):
    assert torch.fmin(x, x.flip(0)).tolist() == [0, 1, 1, 0]
    values, indices = torch.cat((x, x[1:2])).mode()
    assert (values.item(), indices.item()) == (1, 4)


@pytest.mark.parametrize("name", DERIVED)
def test_what_pytorch_derives_from_a_kernel_of_torch_npu_is_that_kernel(x, name):
    before = counters.snapshot()
    DERIVED[name](x)
    seen = counters.snapshot() - before
    assert seen.ops[name].launched == 1
    assert "fallback" not in seen.syncs
