"""Activations, layout casts and small matrix products."""

import math

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError
from npu_sim.references.registry import HOST_ONLY

OPS = load_all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("shape", "dim"), [((3, 10), -1), ((2, 6, 5), 1), ((0, 4), -1), ((2,), 0)])
def test_swiglu(shape, dim, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    half = shape[dim] // 2
    gate, up = x.double().narrow(dim, 0, half), x.double().narrow(dim, half, half)
    want = gate / (1 + torch.exp(-gate)) * up
    torch.testing.assert_close(OPS["npu::npu_swiglu"](x, dim), want.to(dtype))


def test_fast_gelu_is_the_sigmoid_form():
    x = torch.linspace(-4, 4, 17)
    want = [v / (1 + math.exp(-1.702 * v)) for v in x.tolist()]
    torch.testing.assert_close(OPS["npu::npu_fast_gelu"](x), torch.tensor(want))
    assert not torch.allclose(
        OPS["npu::npu_fast_gelu"](x), torch.nn.functional.gelu(x, approximate="tanh")
    )


def test_a_cast_to_tiles_copies_and_reads_as_the_same_values():
    x = torch.randn(3, 4).t()
    cast = OPS["npu::npu_format_cast"](x, 29)
    assert torch.equal(cast, x)
    assert cast.data_ptr() != x.data_ptr()
    assert OPS["npu::npu_format_cast"](x, 2) is x
    assert OPS["npu::npu_format_cast.Tensor"](x, cast) is x
    assert OPS["npu::get_npu_format"](cast) == 2
    assert "npu::get_npu_format" in HOST_ONLY


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("k", "m", "n"), [(3, 5, 7), (2, 1, 4), (0, 2, 3)])
def test_matmul_add(k, m, n, dtype):
    x, weight = torch.randn(k, m).to(dtype), torch.randn(k, n).to(dtype)
    start = torch.randn(m, n)
    out = start.clone()
    assert OPS["atb::_npu_matmul_add_fp32"](x, weight, out) is None
    want = start.double()
    for i in range(m):
        for j in range(n):
            want[i, j] += sum(float(x[r, i]) * float(weight[r, j]) for r in range(k))
    torch.testing.assert_close(out.double(), want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("npu::npu_swiglu", (torch.ones(2, 3),), "is odd"),
        ("npu::npu_swiglu", (torch.ones(2, 4, dtype=torch.int32),), "torch.int32"),
        ("npu::npu_fast_gelu", (torch.ones(2, dtype=torch.float64),), "torch.float64"),
        ("npu::npu_format_cast", (torch.ones(2), 4), "acl_format is 4; valid: 2, 29"),
        (
            "atb::_npu_matmul_add_fp32",
            (torch.ones(2, 3), torch.ones(2, 3), torch.ones(3, 3)),
            "torch.float32",
        ),
    ],
)
def test_refused(name, arguments, reason):
    with pytest.raises(OpError, match=rf"^{name}: .*{reason}"):
        OPS[name](*arguments)


def test_a_cast_that_also_changes_the_dtype_has_no_reference():
    with pytest.raises(OpError, match="no reference for customize_dtype=1"):
        OPS["npu::npu_format_cast"](torch.ones(2), 29, customize_dtype=1)
