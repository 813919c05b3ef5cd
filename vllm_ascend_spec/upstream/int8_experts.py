"""Build vLLM's kernel for int8 experts; since 0.30 vLLM must be told the chosen backend."""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.fused_moe.oracle import int8

from vllm_ascend_spec.upstream.ranges import vllm_is


def make_kernel(quant_config: Any, moe_config: Any, routing_tables: Any) -> Any:
    """Return the kernel that vLLM chooses for the device.

    Args:
        quant_config: vLLM's ``FusedMoEQuantConfig``.
        moe_config: vLLM's ``FusedMoEConfig``.
        routing_tables: the layer's routing tables.
    """
    backend, experts = int8.select_int8_moe_backend(moe_config)
    if vllm_is(">=0.30"):
        return int8.make_int8_moe_kernel(
            int8_backend=backend,
            moe_quant_config=quant_config,
            moe_config=moe_config,
            experts_cls=experts,
            routing_tables=routing_tables,
        )
    else:
        return int8.make_int8_moe_kernel(
            moe_quant_config=quant_config,
            moe_config=moe_config,
            experts_cls=experts,
            routing_tables=routing_tables,
        )
