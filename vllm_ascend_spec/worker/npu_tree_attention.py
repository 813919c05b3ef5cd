"""vllm-ascend's attention of a layer, for drafts that are trees: in two parts, then joined.

All rows attend to the text before them in the paged cache, without a mask. To the keys and values
of the rows themselves they attend with the mask of their paths. The logarithms of both softmaxes'
sums say how much each part counts, as between the ranks of vllm-ascend's context parallelism
(``vllm_ascend/attention/context_parallel/attention_cp.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch_npu
from vllm_ascend.ascend_forward_context import _EXTRA_CTX
from vllm_ascend.attention.attention_v1 import AscendAttentionBackendImpl
from vllm_ascend.compilation.updatable_graph import get_capture_resource, register_task

from vllm_ascend_spec.worker.kept_rows import NOTHING

# Attribute of vllm-ascend's metadata that holds the rows of a step.
ATTRIBUTE = "ascend_spec_tree_rows"


class TreeRows(NamedTuple):
    """The rows that attend along paths, equally many of each request.

    Attributes:
        ends: last row of each request, and one.
        contexts: number of tokens of each request's text before its rows.
        block_table: int32 [num_reqs, max_blocks].
        mask: bool [num_reqs, 1, width, width], true where a row does not see another.
        rows: int64 [num_reqs * width], the rows in the batch, some of them several times; None if
            they are the batch's first ones.
        others: vllm-ascend's metadata for the batch if it has rows besides these, else None.
        kept: int64 [num_kept], rows of the batch whose keys and values may have to be written once
            more; None if these are the batch's first ones.
    """

    ends: list[int]
    contexts: list[int]
    block_table: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor | None
    others: Any | None
    kept: torch.Tensor | None


@dataclass(frozen=True)
class TreeContexts:
    """Names what a replay of a graph sets anew; a ``ParamProvider`` of vllm-ascend.

    Attributes:
        layer_name: vLLM's name of the layer.
    """

    layer_name: str

    def resolve(self, attn_metadata: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of this step."""
        rows: TreeRows = getattr(attn_metadata[self.layer_name], ATTRIBUTE)
        return {
            "actual_seq_lengths": rows.ends,
            "actual_seq_lengths_kv": rows.contexts,
            "block_table": rows.block_table,
        }


class TreeAttentionImpl(AscendAttentionBackendImpl):
    """vllm-ascend's attention of a layer; steps whose metadata has :class:`TreeRows` join parts.

    vllm-ascend has made the object; ``KeptRows`` makes it one of this class.

    Attributes:
        kept: keys and values of the rows that :class:`TreeRows` names,
            [2, max_rows, num_kv_heads, head_size]. Graphs write them, too.
    """

    kept: torch.Tensor = NOTHING

    def forward_impl(
        self,
        query: torch.Tensor,  # [num_tokens, num_heads, head_size]
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
        kv_cache: Any,
        attn_metadata: Any,
        output: torch.Tensor,  # [num_tokens, num_heads, head_size]
    ) -> torch.Tensor:
        """Attend; the signature is vllm-ascend's. All keys have been written to their slots."""
        trees: TreeRows | None = getattr(attn_metadata, ATTRIBUTE, None)
        if trees is None:
            return super().forward_impl(query, key, value, kv_cache, attn_metadata, output)
        if trees.others is not None:
            super().forward_impl(query, key, value, kv_cache, trees.others, output)
        self._keep(key, value, trees)
        if trees.rows is None:
            own = self.kept[:, : trees.ends[-1]]
            output[: trees.ends[-1]] = self._join(query[: trees.ends[-1]], own[0], own[1], trees)
        else:
            rows = trees.rows
            output[rows] = self._join(query[rows], key[rows], value[rows], trees)
        return output

    def _keep(
        self,
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, head_size]
        trees: TreeRows,
    ) -> None:
        """Keep keys and values where no other layer of a graph overwrites them."""
        for buffer, tensor in zip(self.kept, (key, value), strict=True):
            found = tensor[: trees.ends[-1]] if trees.kept is None else tensor[trees.kept]
            buffer[: found.shape[0]].copy_(found)

    def _join(
        self,
        query: torch.Tensor,  # [num_reqs * width, num_heads, head_size]
        key: torch.Tensor,  # [num_reqs * width, num_kv_heads, head_size]
        value: torch.Tensor,  # [num_reqs * width, num_kv_heads, head_size]
        trees: TreeRows,
    ) -> torch.Tensor:
        """Return the attention to the text and to the paths, of the shape of ``query``."""
        outs, sums = zip(
            self._attend_to_text(query, trees),
            self._attend_to_paths(query, key, value, trees),
            strict=True,
        )
        flat = [out.reshape(-1, self.head_size) for out in outs]
        joined, _ = torch_npu.npu_attention_update([part.reshape(-1) for part in sums], flat, 0)
        return joined.view_as(query)

    def _attend_to_text(
        self,
        query: torch.Tensor,  # [num_reqs * width, num_heads, head_size]
        trees: TreeRows,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend to the paged keys before the rows; return log sums, too, row by row."""
        key, value, block_size = self._get_kv_cache_view(self.key_cache, self.value_cache)
        arguments = {
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "input_layout": "TND",
            "scale": self.scale,
            "sparse_mode": 0,
            "block_size": block_size,
            "softmax_lse_flag": True,
            "block_table": trees.block_table,
            "actual_seq_lengths": trees.ends,
            "actual_seq_lengths_kv": trees.contexts,
        }
        if not _EXTRA_CTX.capturing:
            return torch_npu.npu_fused_infer_attention_score(query, key, value, **arguments)
        workspace = get_capture_resource(
            (TreeContexts, self.num_heads, self.num_kv_heads, self.head_size),
            lambda: torch_npu._npu_fused_infer_attention_score_get_max_workspace(
                query, key, value, **arguments
            ),
            self._use_max_workspace_for_fia_graph,
        )
        out = torch.empty_like(query)
        sums = query.new_empty((*query.shape[:2], 1), dtype=torch.float32)
        own = {"query": query, "key": key, "value": value, **arguments}
        register_task(
            torch_npu.npu_fused_infer_attention_score.out,
            {**own, "workspace": workspace, "out": [out, sums]},
            TreeContexts(self._layer_name or ""),
        )
        return out, sums

    def _attend_to_paths(
        self,
        query: torch.Tensor,  # [num_reqs * width, num_heads, head_size]
        key: torch.Tensor,  # [num_reqs * width, num_kv_heads, head_size]
        value: torch.Tensor,  # [num_reqs * width, num_kv_heads, head_size]
        trees: TreeRows,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend to the rows of each path; return log sums, too, row by row.

        Nothing of it changes from replay to replay but the mask, which a graph reads in its buffer.
        """
        width = trees.mask.shape[-1]
        parts = (tensor.unflatten(0, (-1, width)).contiguous() for tensor in (query, key, value))
        out, sums = torch_npu.npu_fused_infer_attention_score(
            *parts,
            num_heads=self.num_heads,
            num_key_value_heads=self.num_kv_heads,
            input_layout="BSND",
            scale=self.scale,
            sparse_mode=0,
            atten_mask=trees.mask,
            softmax_lse_flag=True,
        )
        # By head first: [num_reqs, num_heads, width, 1].
        return out, sums.transpose(1, 2)
