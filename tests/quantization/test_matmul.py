"""Fast kernels give what the arithmetic step by step gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.utils.torch_utils import set_default_torch_dtype

from vllm_ascend_spec.quantization import matmul, reference

SHAPES = [(1, 256, 512), (5, 256, 96), (33, 704, 256)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def in_an_engine() -> Any:
    """Some of vLLM's kernels ask for the current config."""
    from vllm.config import VllmConfig, set_current_vllm_config

    with set_current_vllm_config(VllmConfig()):
        yield


def inputs(rows: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(rows * size)
    x = torch.randn(rows, size) * 1.5 + 0.4
    x[0, :3] = torch.tensor([40.0, -40.0, 0.0])  # beyond the range
    return x.to(dtype)


def layer(outputs: int, size: int, *, bias: bool) -> reference.StaticWeights:
    weight = torch.randn(outputs, size) * 0.05
    scale, offset = reference.input_range(-3.0, 5.0)
    scale = scale.to(torch.bfloat16).float()
    return reference.quantize_static(weight, torch.randn(outputs) if bias else None, scale, offset)


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for the last place of the dtype, of the largest numbers that were added."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    places = 4 * torch.finfo(found.dtype).eps
    torch.testing.assert_close(found, expected, rtol=places, atol=1e-5 + places)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size", "outputs"), SHAPES)
def test_static(rows: int, size: int, outputs: int, dtype: torch.dtype, bias: bool) -> None:
    x, weights = inputs(rows, size, dtype), layer(outputs, size, bias=bias)
    expected = reference.static_linear(x, weights)
    with set_default_torch_dtype(dtype):
        fast = matmul.static(weights, adds_bias=True, dtype=dtype)
    assert_near(fast(x), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size", "outputs"), SHAPES)
def test_dynamic(rows: int, size: int, outputs: int, dtype: torch.dtype) -> None:
    x = inputs(rows, size, dtype)
    weight, scale = reference.quantize_weight(torch.randn(outputs, size) * 0.05)
    expected = reference.dynamic_linear(x, weight, scale, None)
    found = matmul.dynamic(weight, scale, dtype=dtype)(x)
    # Where an activation is in the midst of two numbers, another division may take the other one.
    step = scale.flatten() * x.float().abs().amax(dim=1, keepdim=True)
    off = (found.float() - expected.float()).abs()
    places = 4 * torch.finfo(dtype).eps
    near = 1e-5 + places * (1 + expected.float().abs())
    assert (off > near).float().mean() < 0.01
    assert not ((off > near + step).any())


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_numbers_are_kept_that_the_kernel_looks_at(kind: str) -> None:
    """It has a pointer to the scales; a layer's own ones are freed."""
    x, weights = inputs(4, 256, torch.float32), layer(128, 256, bias=True)
    if kind == "static":
        fast = matmul.static(weights, adds_bias=True, dtype=x.dtype)
    else:
        fast = matmul.dynamic(weights.weight, weights.deq_scale.view(-1, 1), dtype=x.dtype)
    before = fast(x)
    weights.deq_scale.fill_(7.0)
    weights.weight.fill_(7)
    assert torch.equal(fast(x), before)


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("is_first", [False, True])
def test_other_devices_kernels_are_given_the_same(
    dtype: torch.dtype, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's choice for a GPU is the same interface as its choice for a CPU."""
    # Its kernels for AMX take no float32.
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    x, weights = inputs(5, 256, dtype), layer(96, 256, bias=True)
    ours = matmul.static(weights, adds_bias=is_first, dtype=dtype)(x)
    with set_default_torch_dtype(dtype):  # as where weights are loaded
        other = matmul.OtherStatic(weights, adds_bias=is_first, dtype=dtype)(x)
        dynamic = matmul.OtherDynamic(weights.weight, weights.deq_scale.view(-1, 1), dtype=dtype)(x)
    near = 0.02 * ours.float().abs().max().item()
    torch.testing.assert_close(other.float(), ours.float(), rtol=0.02, atol=near)
    expected = matmul.dynamic(weights.weight, weights.deq_scale.view(-1, 1), dtype=dtype)(x)
    torch.testing.assert_close(dynamic.float(), expected.float(), rtol=0.02, atol=near)


def test_parts_of_a_split_layer_add_up() -> None:
    """Rows of a weight on several devices: one of them adds the bias."""
    x, whole = inputs(5, 256, torch.float32), layer(96, 256, bias=True)
    parts = []
    for number, columns in enumerate((slice(0, 128), slice(128, 256))):
        part = reference.StaticWeights(
            whole.weight[:, columns].contiguous(),
            whole.input_scale,
            whole.input_offset,
            whole.deq_scale,
            whole.quant_bias,
        )
        fast = matmul.static(part, adds_bias=number == 0, dtype=x.dtype)
        parts.append(fast(x[:, columns].contiguous()))
    torch.testing.assert_close(sum(parts), reference.static_linear(x, whole), rtol=1e-4, atol=1e-4)


def test_a_layer_is_near_its_float_one() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(64, 256), torch.randn(96, 256) * 0.05
    bias, (scale, offset) = torch.randn(96), reference.input_range(x.min().item(), x.max().item())
    exact = x @ weight.t() + bias
    static = reference.static_linear(x, reference.quantize_static(weight, bias, scale, offset))
    dynamic = reference.dynamic_linear(x, *reference.quantize_weight(weight), bias)
    for found in (static, dynamic):
        assert (found - exact).pow(2).mean() < 1e-3 * exact.pow(2).mean()
    # Negative control: with the offset forgotten it is not.
    wrong = reference.quantize_static(weight, bias, scale, offset)
    wrong.quant_bias.zero_()
    assert (reference.static_linear(x, wrong) - exact).pow(2).mean() > 0.1


def test_scales_of_float16_models_are_bits() -> None:
    scales = torch.tensor([0.5, 3.25e-5, 1e-3])
    stored = scales.view(torch.int32).to(torch.int64)
    assert torch.equal(reference.decode_scale(stored), scales)
    assert torch.equal(reference.decode_scale(scales), scales)
