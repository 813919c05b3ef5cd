"""Experts of type ``W8A8_DYNAMIC`` give what the arithmetic gives, token by token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.platforms import current_platform

from tests.marks import requires_cpu_build
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.quantization import reference
from vllm_ascend_spec.quantization.description import DYNAMIC, FLOAT, STATIC, parse_description
from vllm_ascend_spec.quantization.experts import DynamicExpertsMethod

pytestmark = requires_cpu_build

EXPERTS, HIDDEN, INNER, TOKENS, CHOSEN = 4, 64, 32, 9, 2


def load(parameter: torch.nn.Parameter, loaded: torch.Tensor) -> None:
    parameter.data.copy_(loaded)


@pytest.fixture
def layer() -> Any:
    """A layer, with vLLM's attributes of one, before its weights are laid out."""
    current_platform.import_kernels()
    torch.manual_seed(0)
    made: Any = torch.nn.Module()
    made.method = DynamicExpertsMethod(SimpleNamespace(is_act_and_mul=True))  # type: ignore[arg-type]
    made.activation, made.apply_router_weight_on_input = MoEActivation.SILU, False
    made.expert_map = None
    made.method.create_weights(made, EXPERTS, HIDDEN, INNER, torch.float32, weight_loader=load)
    for name in ("w13", "w2"):
        weight = getattr(made, f"{name}_weight")
        drawn = torch.randn(weight.shape) * 0.1
        pairs = [reference.quantize_weight(part) for part in drawn]
        load(weight, torch.stack([pair[0] for pair in pairs]))
        load(getattr(made, f"{name}_weight_scale"), torch.stack([pair[1] for pair in pairs]))
    return made


def expected(
    layer: Any,
    x: torch.Tensor,  # [tokens, hidden size]
    weights: torch.Tensor,  # [tokens, chosen experts]
    experts: torch.Tensor,  # [tokens, chosen experts]; -1 is nowhere
) -> torch.Tensor:
    """Return the sums of one token after the other."""
    total = torch.zeros_like(x)
    for token in range(x.shape[0]):
        for place in range(experts.shape[1]):
            expert, weight = int(experts[token, place]), weights[token, place]
            if expert < 0:
                continue
            given = x[token : token + 1]
            if layer.apply_router_weight_on_input:
                given, weight = given * weight, torch.ones(())
            inner = linear(layer, "w13", expert, given)
            gate, up = inner.chunk(2, dim=1)
            out = linear(layer, "w2", expert, torch.nn.functional.silu(gate) * up)
            total[token] += weight * out[0]
    return total


def linear(layer: Any, name: str, expert: int, x: torch.Tensor) -> torch.Tensor:
    """Return an expert's outputs for one token, [1, outputs]."""
    weight, scale = (getattr(layer, f"{name}_weight{end}")[expert] for end in ("", "_scale"))
    return reference.dynamic_linear(x, weight.data, scale.data, None)


@pytest.mark.parametrize("here", [None, [0, -1, 1, -1]])
@pytest.mark.parametrize("weighs_inputs", [False, True])
def test_experts(layer: Any, here: list[int] | None, weighs_inputs: bool) -> None:
    chosen = 1 if weighs_inputs else CHOSEN
    layer.apply_router_weight_on_input = weighs_inputs
    layer.expert_map = None if here is None else torch.tensor(here, dtype=torch.int32)
    x = torch.randn(TOKENS, HIDDEN)
    weights = torch.rand(TOKENS, chosen)
    experts = torch.stack([torch.randperm(EXPERTS)[:chosen] for _ in range(TOKENS)]).int()
    local = experts if here is None else layer.expert_map[experts.long()]
    wanted = expected(layer, x, weights, local)
    layer.method.process_weights_after_loading(layer)
    found = layer.method.apply(layer, x, weights, experts)
    # An activation in the midst of two numbers may be taken for the other one.
    assert (found - wanted).abs().max() < 0.02 * wanted.abs().max()
    assert not torch.equal(found, layer.method.apply(layer, x, weights.flip(0), experts))


def test_no_expert_is_here(layer: Any) -> None:
    layer.expert_map = torch.full((EXPERTS,), -1, dtype=torch.int32)
    layer.method.process_weights_after_loading(layer)
    x = torch.randn(TOKENS, HIDDEN)
    weights, experts = torch.rand(TOKENS, 1), torch.zeros(TOKENS, 1, dtype=torch.int32)
    assert torch.equal(layer.method.apply(layer, x, weights, experts), torch.zeros_like(x))


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ((DYNAMIC, FLOAT), r"experts of a layer differ .*1\.up_proj: FLOAT"),
        ((STATIC, STATIC), r"0\.up_proj\.weight is W8A8; valid: 'W8A8_DYNAMIC'"),
    ],
)
def test_what_no_kernel_runs_is_named(kinds: tuple[str, str], message: str) -> None:
    layers = {f"mlp.experts.{n}.up_proj.weight": kind for n, kind in enumerate(kinds)}
    description = parse_description({**layers, "mlp.shared_experts.up_proj.weight": STATIC})
    with pytest.raises(InvalidCheckpointError, match=message):
        description.type_of_experts("mlp.experts")
    assert description.type_of_experts("mlp.others") == FLOAT
