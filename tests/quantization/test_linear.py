"""Numbers of a checkpoint that can only give noise are named as they are laid out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.marks import requires_cpu_build
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.quantization.linear import DynamicLinearMethod, StaticLinearMethod

pytestmark = requires_cpu_build
PREFIX = "model.layers.0.self_attn.o_proj"
RIGHT = {"weight": 1, "input_scale": 0.5, "input_offset": -3, "deq_scale": 0.25, "quant_bias": 2}


def made(kind: type, numbers: dict[str, float], **more: Any) -> Any:
    """Return a layer's method and the layer, with numbers in its parameters."""
    method, layer = kind(PREFIX, **more), torch.nn.Module()
    method.create_weights(layer, 32, [16], 32, 16, torch.float32, weight_loader=None)
    for name, number in numbers.items():
        getattr(layer, name).data.fill_(number)
    return method, layer


def test_right_ones_are_taken() -> None:
    method, layer = made(StaticLinearMethod, RIGHT)
    method.process_weights_after_loading(layer)
    # Each input is 2 / 0.5 - 3, and there are 32 of them.
    found = method.apply(layer, torch.full((3, 32), 2.0))
    assert torch.equal(found, torch.full((3, 16), (32 * 1 + 2) * 0.25))


@pytest.mark.parametrize(
    ("name", "number", "valid"),
    [
        ("input_scale", 0.0, "above 0"),
        ("input_scale", float("nan"), "above 0"),
        ("input_offset", 200.0, "a whole number from -128 to 127"),
        ("input_offset", 0.5, "a whole number"),
        ("deq_scale", float("inf"), "0 or above"),
        ("deq_scale", -1.0, "0 or above"),
    ],
)
def test_wrong_ones_are_named(name: str, number: float, valid: str) -> None:
    method, layer = made(StaticLinearMethod, {**RIGHT, name: number})
    with pytest.raises(CheckpointError) as raised:
        method.process_weights_after_loading(layer)
    assert str(raised.value).startswith(f"model='{PREFIX}.{name}': is ")
    assert valid in str(raised.value)


@pytest.mark.parametrize("number", [-1.0, float("nan")])
def test_a_wrong_scale_of_a_weight_is_named(number: float) -> None:
    method, layer = made(DynamicLinearMethod, {"weight": 1, "weight_scale": number})
    with pytest.raises(CheckpointError, match=r"o_proj\.weight_scale'"):
        method.process_weights_after_loading(layer)


def test_dummy_numbers_are_not_looked_at() -> None:
    """``--load-format dummy`` draws them."""
    method, layer = made(StaticLinearMethod, {**RIGHT, "input_scale": -1e-3}, is_dummy=True)
    method.process_weights_after_loading(layer)
