"""Gated DeltaNet layers on a CPU, with drafts and in float32.

Why: with drafts, vLLM's code for a CPU
(vllm/model_executor/layers/mamba/ops/cpu/gdn_attention.py:cpu_gdn_attention_core) keeps rejected
inputs of the convolution where a request had fewer than K drafts, stops where more were accepted
than a step has rows, and reads another request's state where the first part of a prompt has one
token. Rows with drafts, rows without and prompts run in kernels that round differently, and all of
them want bfloat16: greedy answers differ from those without speculation.
How: one implementation for all rows (``states/``), in float32, for bfloat16 models, too. It reads
the state of each request from its first block, where ``cpu_accepted_states`` puts it. It is slow,
so engines in bfloat16 without speculation keep vLLM's.
Until: the kernels take float32, and round the same way with drafts and without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.patches.patching import Patches
from vllm_ascend_spec.states.layer import GatedDeltaLayer, StateRows

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_patches = Patches()
revert = _patches.revert


def keeps_vllms(vllm_config: VllmConfig) -> bool:
    """Tell whether an engine runs vLLM's kernels."""
    is_plain = vllm_config.speculative_config is None
    return is_plain and vllm_config.model_config.dtype == torch.bfloat16


def with_rows(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return the metadata builder's ``build`` that also says where all requests' states are.

    The stock one says it of requests with drafts, in steps with drafts.
    """

    @functools.wraps(stock)
    def build(
        self: Any,
        common_prefix_len: int,
        common_attn_metadata: Any,
        num_accepted_tokens: torch.Tensor | None = None,
        num_decode_draft_tokens_cpu: torch.Tensor | None = None,
        fast_build: bool = False,
    ) -> Any:
        from vllm.v1.attention.backends.utils import mamba_get_block_table_tensor

        found = stock(
            self,
            common_prefix_len,
            common_attn_metadata,
            num_accepted_tokens,
            num_decode_draft_tokens_cpu,
            fast_build,
        )
        if keeps_vllms(self.vllm_config):
            return found
        blocks = mamba_get_block_table_tensor(
            common_attn_metadata.block_table_tensor,
            common_attn_metadata.seq_lens,
            self.kv_cache_spec,
            self.vllm_config.cache_config.mamba_cache_mode,
        )
        count, drafts = common_attn_metadata.num_reqs, num_decode_draft_tokens_cpu
        found.state_rows = StateRows(
            bounds=common_attn_metadata.query_start_loc_cpu[: count + 1].tolist(),
            blocks=blocks[:count].tolist(),
            has_state=(common_attn_metadata.compute_num_computed_tokens()[:count] > 0).tolist(),
            has_drafts=[False] * count if drafts is None else (drafts[:count] >= 0).tolist(),
        )
        return found

    return build


def core_with(stock: Callable[..., None], layer_name_type: Any) -> Callable[..., None]:
    """Return the custom op that vLLM registers once in a process."""

    def core(
        mixed_qkv: torch.Tensor,  # [num_tokens, width]
        b: torch.Tensor,  # [num_tokens, num_heads]
        a: torch.Tensor,  # [num_tokens, num_heads]
        core_attn_out: torch.Tensor,  # [num_tokens, num_heads, value_dim], written
        layer_name: Any,
    ) -> None:
        from vllm.forward_context import get_forward_context
        from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first
        from vllm.utils.torch_utils import _resolve_layer_name

        context = get_forward_context()
        if context.attn_metadata is None:  # a dummy run
            return
        layer = context.no_compile_layers[_resolve_layer_name(layer_name)]
        rows = getattr(context.attn_metadata[layer.prefix], "state_rows", None)
        if rows is None:
            stock(mixed_qkv, b, a, core_attn_out, layer_name)
            return
        width_first = is_conv_state_dim_first()
        GatedDeltaLayer(layer, width_first=width_first).run(rows, mixed_qkv, b, a, core_attn_out)

    # vLLM reads the op's schema from the annotations.
    core.__annotations__ = {**stock.__annotations__, "layer_name": layer_name_type}
    return core


def packed_with(stock: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the packing of a convolution's weight that leaves alone what no kernel takes."""

    @functools.wraps(stock)
    def causal_conv1d_weight_pack(weight: torch.Tensor) -> torch.Tensor:
        return stock(weight) if weight.dtype in {torch.bfloat16, torch.float16} else weight

    return causal_conv1d_weight_pack


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm import _custom_ops
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder

    core = core_with(gdn_attention.cpu_gdn_attention_core, gdn_attention.LayerNameType)
    _patches.set(gdn_attention, "cpu_gdn_attention_core", core)
    build = with_rows(GDNAttentionMetadataBuilder.build)
    _patches.set(GDNAttentionMetadataBuilder, "build", build)
    pack = packed_with(_custom_ops.causal_conv1d_weight_pack)
    _patches.set(_custom_ops, "causal_conv1d_weight_pack", pack)
