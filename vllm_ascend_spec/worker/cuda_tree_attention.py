"""vLLM's Triton attention of a layer, for drafts that are trees: our kernel takes bits of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from vllm import envs
from vllm.v1.attention.backends.triton_attn import TritonAttentionImpl

from vllm_ascend_spec.ops.tree_attention import tree_attention
from vllm_ascend_spec.worker.kept_rows import NOTHING

# Attribute of vLLM's metadata that holds the rows of a step.
ATTRIBUTE = "ascend_spec_tree_rows"


class TreeRows(NamedTuple):
    """The rows of a step that attend along paths. Graphs read both tensors in their buffers.

    Attributes:
        seen: int64 [num_tokens], see ``ops/tree_attention/__init__.py``.
        kept: int64 [num_kept], rows whose keys and values may have to be written once more.
    """

    seen: torch.Tensor
    kept: torch.Tensor


class TreeAttentionImpl(TritonAttentionImpl):
    """vLLM's Triton attention; steps whose metadata has :class:`TreeRows` take our kernel.

    vLLM has made the object; ``KeptRows`` makes it one of this class.

    Attributes:
        kept: keys and values of the rows that :class:`TreeRows` names,
            [2, max_rows, num_kv_heads, head_size]. Graphs write them, too.
    """

    kept: torch.Tensor = NOTHING

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        """Return False: our kernel's output has the queries' dtype."""
        return False

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,  # [num_tokens, num_heads, head_size]
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
        kv_cache: torch.Tensor,  # [num_blocks, num_kv_heads, block_size, 2 * head_size]
        attn_metadata: Any,
        output: torch.Tensor,  # [num_tokens, num_heads, head_size]
        *scales: torch.Tensor | None,
        **more: Any,
    ) -> torch.Tensor:
        """Attend; the signature is vLLM's. All keys have been written to their slots."""
        trees: TreeRows | None = getattr(attn_metadata, ATTRIBUTE, None)
        if trees is None:
            return super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output, *scales, **more
            )
        for buffer, tensor in zip(self.kept, (key, value), strict=True):
            torch.index_select(tensor, 0, trees.kept, out=buffer[: trees.kept.shape[0]])
        num_tokens = trees.seen.shape[0]
        keys, values = kv_cache.transpose(1, 2).split(self.head_size, dim=-1)
        tree_attention(
            query[:num_tokens],
            keys,
            values,
            output[:num_tokens],
            trees.seen,
            attn_metadata.query_start_loc,
            attn_metadata.seq_lens,
            attn_metadata.block_table,
            scale=self.scale,
            soft_cap=self.logits_soft_cap,
            window=self.sliding_window[0] + 1,
            sinks=self.sinks,
            is_batch_invariant=envs.VLLM_BATCH_INVARIANT,
        )
        return output
