"""Load and run experts that ModelSlim quantized as ``W8A8_DYNAMIC``.

Each token has its own range at an expert's input, and another at its down projection's input.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.fused_moe import FusedMoeWeightScaleSupported
from vllm.model_executor.layers.fused_moe.activation import apply_moe_activation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEQuantConfig,
    int8_w8a8_moe_quant_config,
)
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.utils import set_weight_attrs

from vllm_ascend_spec.quantization import matmul

# An expert's fused input projections, and its output projection.
INTO, OUT_OF = "w13", "w2"

LIBRARY = torch.library.Library("vllm_ascend_spec", "FRAGMENT")
OP = "quantized_experts"
LIBRARY.define(f"{OP}(Tensor x, Tensor weights, Tensor experts, str layer) -> Tensor")


def _run_layer(
    x: torch.Tensor,  # [tokens, hidden size]
    weights: torch.Tensor,  # [tokens, chosen experts]
    experts: torch.Tensor,  # [tokens, chosen experts]
    layer: str,
) -> torch.Tensor:
    """Run the experts of the layer with this name in the running engine."""
    found = get_forward_context().no_compile_layers[layer].routed_experts
    return found.quant_method.run(found, x, weights, experts)


LIBRARY.impl(OP, _run_layer, "CPU")
torch.library.register_fake(
    f"vllm_ascend_spec::{OP}", lambda x, *_: torch.empty_like(x), lib=LIBRARY
)


class DynamicExpertsMethod(FusedMoEMethodBase):
    """Load and run a layer of experts.

    Args:
        moe: vLLM's description of the layer.
    """

    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__(moe)
        self._into: list[matmul.Multiply] = []
        self._out_of: list[matmul.Multiply] = []

    def create_weights(
        self,
        layer: torch.nn.Module,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Make the layer's parameters; the signature is vLLM's."""
        self._dtype = params_dtype
        inner = intermediate_size_per_partition
        halves = 2 if self.moe.is_act_and_mul else 1
        by_output = {"quant_method": FusedMoeWeightScaleSupported.CHANNEL.value}
        for name, outputs, inputs in (
            (INTO, halves * inner, hidden_size),
            (OUT_OF, hidden_size, inner),
        ):
            weight = torch.empty(num_experts, outputs, inputs, dtype=torch.int8)
            self._add(layer, f"{name}_weight", weight, extra_weight_attrs)
            # The offsets are zeros, for activations that are symmetric.
            for part in ("scale", "offset"):
                numbers = torch.zeros(num_experts, outputs, 1, dtype=torch.float32)
                self._add(
                    layer, f"{name}_weight_{part}", numbers, {**extra_weight_attrs, **by_output}
                )

    def _add(
        self, layer: torch.nn.Module, name: str, data: torch.Tensor, attributes: dict[str, Any]
    ) -> None:
        parameter = torch.nn.Parameter(data, requires_grad=False)
        set_weight_attrs(parameter, attributes)
        layer.register_parameter(name, parameter)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Convert each expert's weights to its kernel's layout."""
        if layer.w13_weight.device.type != "cpu":
            self._make_kernel(layer)
            return
        for name, made in ((INTO, self._into), (OUT_OF, self._out_of)):
            weights, scales = (getattr(layer, f"{name}_weight{end}").data for end in ("", "_scale"))
            made[:] = [
                matmul.dynamic(weight, scale, dtype=self._dtype)
                for weight, scale in zip(weights, scales, strict=True)
            ]
            for end in ("_scale", "_offset"):
                delattr(layer, f"{name}_weight{end}")
            # Other code reads a layer's device from its weight.
            weights_kept = getattr(layer, f"{name}_weight")
            weights_kept.data = weights.new_empty(0)

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> FusedMoEQuantConfig | None:
        """Return the scales for vLLM's kernels; None on a CPU, which does not use them."""
        if self._into:
            return None
        return int8_w8a8_moe_quant_config(
            w1_scale=layer.w13_weight_scale,
            w2_scale=layer.w2_weight_scale,
            a1_scale=None,
            a2_scale=None,
            per_act_token_quant=True,
        )

    def _make_kernel(self, layer: Any) -> None:
        """Hand the layer to the kernel that vLLM chooses for the device."""
        from vllm_ascend_spec.upstream.int8_experts import make_kernel

        self.moe_quant_config = self.get_fused_moe_quant_config(layer)
        tables = layer._expert_routing_tables()
        self.moe_kernel = make_kernel(self.moe_quant_config, self.moe, tables)
        self.moe_kernel.fused_experts.process_weights_after_loading(layer)

    def apply(
        self,
        layer: Any,
        x: torch.Tensor,  # [tokens, hidden size]
        topk_weights: torch.Tensor,  # [tokens, chosen experts]
        topk_ids: torch.Tensor,  # [tokens, chosen experts]
        shared_experts: Any = None,
        shared_experts_input: torch.Tensor | None = None,  # [tokens, hidden size]
    ) -> torch.Tensor:
        """Return the weighted sum of the chosen local experts, [tokens, hidden size]."""
        if self.moe_kernel is not None:
            return self.moe_kernel.apply(
                x,
                layer.w13_weight,
                layer.w2_weight,
                topk_weights=topk_weights,
                topk_ids=topk_ids,
                activation=layer.activation,
                global_num_experts=layer.global_num_experts,
                expert_map=layer.expert_map,
                apply_router_weight_on_input=layer.apply_router_weight_on_input,
                shared_experts=shared_experts,
                shared_experts_input=shared_experts_input,
            )
        if torch.compiler.is_compiling():
            # Which experts run depends on the data, so the compiler sees all of this as one op.
            return torch.ops.vllm_ascend_spec.quantized_experts(
                x, topk_weights, topk_ids, layer.layer_name
            )
        return self.run(layer, x, topk_weights, topk_ids)

    def run(
        self,
        layer: Any,
        x: torch.Tensor,  # [tokens, hidden size]
        topk_weights: torch.Tensor,  # [tokens, chosen experts]
        topk_ids: torch.Tensor,  # [tokens, chosen experts]
    ) -> torch.Tensor:
        """Compute the result of :meth:`apply` on a CPU."""
        local = topk_ids if layer.expert_map is None else layer.expert_map[topk_ids.long()]
        total = torch.zeros_like(x, dtype=torch.float32)
        for expert in local.unique().tolist():
            # Experts of other devices are -1.
            if expert >= 0:
                tokens, places = (local == expert).nonzero(as_tuple=True)
                weights = topk_weights[tokens, places].unsqueeze(1).float()
                total.index_add_(0, tokens, self._run(layer, expert, x[tokens], weights))
        return total.to(x.dtype)

    def _run(
        self,
        layer: Any,
        expert: int,
        x: torch.Tensor,  # [tokens, hidden size]
        weights: torch.Tensor,  # float32 [tokens, 1]
    ) -> torch.Tensor:
        """Return an expert's weighted outputs, float32 [tokens, hidden size]."""
        weighs_inputs = layer.apply_router_weight_on_input
        inner = self._into[expert](x * weights.to(x.dtype) if weighs_inputs else x)
        halves = 2 if self.moe.is_act_and_mul else 1
        gated = inner.new_empty(inner.shape[0], inner.shape[1] // halves)
        apply_moe_activation(layer.activation, gated, inner)
        out = self._out_of[expert](gated).float()
        return out if weighs_inputs else out * weights
