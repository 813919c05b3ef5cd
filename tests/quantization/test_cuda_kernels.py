"""On CUDA layers go to vLLM's int8 kernels as those want them; no GPU has run that.

vLLM's choice of a kernel, what its class does to a layer's numbers, and what it requires of them
are real. What is compiled for a GPU is in its place: its formulas, as vLLM documents them
(csrc/quantization/w8a8/cutlass/Epilogues.md), in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from vllm import _custom_ops
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.kernels import linear as kernels
from vllm.model_executor.kernels.linear.scaled_mm import cutlass, triton
from vllm.platforms.interface import PlatformEnum
from vllm.utils.torch_utils import set_default_torch_dtype

from tests.quantization.test_matmul import inputs, layer
from vllm_ascend_spec.quantization import matmul, reference

HALVES = [torch.bfloat16, torch.float16]
CUTLASS, TRITON = cutlass.CutlassInt8ScaledMMLinearKernel, triton.TritonInt8ScaledMMLinearKernel


class Gpu:
    """What vLLM asks its platform here."""

    _enum = PlatformEnum.CUDA
    is_cuda = is_cuda_alike = staticmethod(lambda: True)
    is_rocm = is_xpu = is_cpu = staticmethod(lambda: False)
    get_device_capability = staticmethod(lambda *_: None)


def static_quant(output: Any, x: Any, scale: Any, azp: Any) -> None:
    """Quantize by one range, as the kernel does: rounded, moved, then cut."""
    moved = torch.round(x.double() / scale.double()) + azp
    output.copy_(moved.clamp(-128, 127))


def dynamic_quant(output: Any, x: Any, scale: Any, azp: Any) -> None:
    assert azp is None
    scale.copy_(x.float().abs().amax(dim=1, keepdim=True) / 127)
    output.copy_(torch.round(x.double() / scale.double()))


def product(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, less: Any = 0) -> Any:
    """Return scale_a * scale_b * (a @ b - less) + bias."""
    found = (a.double() @ b.double() - less) * scale_a.double() * scale_b.double().view(1, -1)
    return found if bias is None else found + bias.double()


def scaled_mm(out: Any, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any) -> None:
    out.copy_(product(a, b, scale_a, scale_b, bias))


def scaled_mm_azp(
    out: Any, a: Any, b: Any, scale_a: Any, scale_b: Any, adjusted: Any, azp: Any, bias: Any
) -> None:
    assert azp is None  # one for all is in `adjusted`
    assert adjusted.dtype == torch.int32
    out.copy_(product(a, b, scale_a, scale_b, bias, adjusted))


def triton_scaled_mm(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: torch.dtype, bias: Any = None
) -> Any:
    return product(a, b, scale_a, scale_b, bias).to(out_dtype)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    for module in (kernels, cutlass, triton, _custom_ops):
        monkeypatch.setattr(module, "current_platform", Gpu)
    compiled: dict[str, Callable[..., None]] = {
        "static_scaled_int8_quant": static_quant,
        "dynamic_scaled_int8_quant": dynamic_quant,
        "cutlass_scaled_mm": scaled_mm,
        "cutlass_scaled_mm_azp": scaled_mm_azp,
    }
    for name, function in compiled.items():
        monkeypatch.setattr(torch.ops._C, name, function, raising=False)
    monkeypatch.setattr(triton, "triton_scaled_mm", triton_scaled_mm)
    with set_current_vllm_config(VllmConfig()):
        yield


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for the last places, and one activation in many that is another number by one."""
    assert found.dtype == expected.dtype
    off = (found.float() - expected.float()).abs()
    places = 8 * torch.finfo(found.dtype).eps
    limit = 1e-4 + places * (1 + expected.float().abs())
    assert (off > limit).float().mean() < 0.02
    assert off.max() < 0.02 * expected.float().abs().max()


@pytest.mark.parametrize("adds_bias", [True, False])
@pytest.mark.parametrize("dtype", HALVES)
def test_static(dtype: torch.dtype, adds_bias: bool) -> None:
    x, weights = inputs(33, 256, dtype), layer(96, 256, bias=True)
    with set_default_torch_dtype(dtype):
        fast = matmul.OtherStatic(weights, adds_bias=adds_bias, dtype=dtype)
    assert type(fast._kernel) is CUTLASS
    if not adds_bias:
        weights.quant_bias.zero_()
    near(fast(x), reference.static_linear(x, weights))


@pytest.mark.parametrize("dtype", HALVES)
def test_dynamic(dtype: torch.dtype) -> None:
    x = inputs(33, 256, dtype)
    weight, scale = reference.quantize_weight(torch.randn(96, 256) * 0.05)
    fast = matmul.OtherDynamic(weight, scale, dtype=dtype)
    assert type(fast._kernel) is CUTLASS
    near(fast(x), reference.dynamic_linear(x, weight, scale, None))


@pytest.mark.parametrize(
    ("size", "outputs", "dtype"),
    [(256, 100, torch.float16), (100, 96, torch.float16), (256, 96, torch.float32)],
)
def test_what_cutlass_does_not_take(size: int, outputs: int, dtype: torch.dtype) -> None:
    """Such a layer, which vLLM's own choice ends the engine with, goes to its other kernel."""
    x, weights = inputs(5, size, dtype), layer(outputs, size, bias=True)
    static = matmul.OtherStatic(weights, adds_bias=True, dtype=dtype)
    assert type(static._kernel) is TRITON
    near(static(x), reference.static_linear(x, weights))
    scales = weights.deq_scale.view(-1, 1)
    dynamic = matmul.OtherDynamic(weights.weight, scales, dtype=dtype)
    assert type(dynamic._kernel) is TRITON
    near(dynamic(x), reference.dynamic_linear(x, weights.weight, scales, None))


def test_a_forgotten_offset_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""

    def forgetful(out: Any, a: Any, b: Any, scale_a: Any, scale_b: Any, *rest: Any) -> None:
        out.copy_(product(a, b, scale_a, scale_b, rest[-1]))

    monkeypatch.setattr(torch.ops._C, "cutlass_scaled_mm_azp", forgetful, raising=False)
    x, weights = inputs(33, 256, torch.bfloat16), layer(96, 256, bias=True)
    fast = matmul.OtherStatic(weights, adds_bias=True, dtype=torch.bfloat16)
    with pytest.raises(AssertionError):
        near(fast(x), reference.static_linear(x, weights))
