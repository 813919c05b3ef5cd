"""Triton kernels in code that is compiled."""

import pytest
import torch

if not hasattr(torch, "npu"):
    pytest.skip("torch_npu is not loaded: run with the simulator", allow_module_level=True)
triton = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

graphs = []


def as_it_is(graph, _inputs):
    graphs.append(graph)
    return graph.forward


BACKENDS = {"traced": as_it_is, "functional": aot_autograd(fw_compiler=as_it_is)}


@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None})
@triton.jit
def scale_rows(x, out, bias, factor, num_rows, WIDTH: tl.constexpr, HAS_BIAS: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    at = row * WIDTH + tl.arange(0, WIDTH)
    value = tl.load(x + at, mask=row < num_rows) * factor
    if HAS_BIAS:
        value += tl.load(bias + tl.arange(0, WIDTH))
    tl.store(out + at, value, mask=row < num_rows)


def scaled(x, bias):
    out = torch.empty_like(x)
    scale_rows[(x.shape[0],)](x, out, bias, 0.5, num_rows=x.shape[0], WIDTH=16)
    return out + 1


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_a_launch_is_an_op_of_the_graph(backend, with_bias):
    torch._dynamo.reset()
    graphs.clear()
    bias = torch.arange(16.0) if with_bias else None
    compiled = torch.compile(scaled, backend=BACKENDS[backend], fullgraph=True, dynamic=True)
    for rows in (5, 3):
        x = torch.randn(rows, 16)
        out = compiled(x.npu(), None if bias is None else bias.npu())
        want = x * 0.5 + 1 + (0 if bias is None else bias)
        torch.testing.assert_close(out.cpu(), want)
    assert len(graphs) == 1
    assert "npu_sim.triton_kernel" in str(graphs[0].graph)


@torch.no_grad()
def test_what_a_compiled_kernel_writes_is_seen():
    def doubled_in_place(x):
        scale_rows[(x.shape[0],)](x, x, None, 2.0, num_rows=x.shape[0], WIDTH=16)

    torch._dynamo.reset()
    x = torch.randn(4, 16)
    given = x.npu()
    torch.compile(doubled_in_place, backend=BACKENDS["functional"], fullgraph=True)(given)
    assert torch.equal(given.cpu(), x * 2)
