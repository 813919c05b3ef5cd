"""vLLM's attention on a CPU, for drafts that are trees: path by path through its own kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl

# Attribute of vLLM's metadata that holds the paths of a step.
ATTRIBUTE = "ascend_spec_paths"


class PathRound(NamedTuple):
    """One call of the kernel, see ``worker/tree_plan.py``.

    Attributes:
        metadata: vLLM's metadata of the rows that attend.
        rows: int64 [num_rows], these rows of the batch.
        moved: int64 [num_moved], rows whose keys and values are written first.
        slots: int64 [num_moved], where to.
    """

    metadata: Any
    rows: torch.Tensor
    moved: torch.Tensor
    slots: torch.Tensor


class StepPaths(NamedTuple):
    """The paths of a step.

    Attributes:
        rounds: the calls of the kernel, in order.
        kept: int64 [num_kept], rows of the batch whose keys and values may have to be written once
            more when it is known which path was accepted.
    """

    rounds: list[PathRound]
    kept: torch.Tensor


class TreeAttentionImpl(CPUAttentionBackendImpl):
    """vLLM's attention of a layer; a step with trees takes one call for each of their paths.

    Attributes:
        kept: keys and values of the rows that :class:`StepPaths` names, each
            [num_kept, num_kv_heads, head_size]; None if the last step had no trees.
    """

    kept: tuple[torch.Tensor, torch.Tensor] | None = None

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
        """Attend; the signature is vLLM's. All keys have been written, each in its row's slot."""
        paths: StepPaths | None = getattr(attn_metadata, ATTRIBUTE, None)
        attend = super().forward
        if paths is None:
            return attend(
                layer, query, key, value, kv_cache, attn_metadata, output, *scales, **more
            )
        self.kept = (key[paths.kept], value[paths.kept])
        for metadata, rows, moved, slots in paths.rounds:
            if moved.shape[0]:
                self.do_kv_cache_update(layer, key[moved], value[moved], kv_cache, slots)
            queries = query[rows]
            found = torch.empty_like(queries)
            attend(layer, queries, None, None, kv_cache, metadata, found, *scales, **more)
            output[rows] = found
        return output

    def keep_path(
        self,
        layer: Any,
        places: torch.Tensor,  # [num_written]
        slots: torch.Tensor,  # [num_written]
    ) -> None:
        """Write keys and values of the accepted paths to their slots.

        Args:
            layer: vLLM's layer.
            places: int64, which of the rows that were kept.
            slots: int64.
        """
        assert self.kept is not None
        key, value = self.kept
        self.do_kv_cache_update(layer, key[places], value[places], layer.kv_cache, slots)


class TreeAttentionBackend(CPUAttentionBackend):
    """vLLM's backend on a CPU, with the attention of trees."""

    @staticmethod
    def get_impl_cls() -> type[TreeAttentionImpl]:
        """Return the class of a layer's attention."""
        return TreeAttentionImpl
