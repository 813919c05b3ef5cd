"""Attention metadata of draft steps 2 to K: one row per request, at capture and at replay.

vllm-ascend calls one method when it captures a graph and another before each step. Both apply
:func:`describe_one_row_each` to the metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import CUDAGraphMode

from vllm_ascend_spec.methods.loops.ascend.rejected import without_rejected
from vllm_ascend_spec.methods.loops.ascend.stock import StockProposer

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.methods.drafter import Runner
    from vllm_ascend_spec.methods.tree_drafts import Pass, TreeDrafts


def describe_one_row_each(
    metadata: Any,
    num_rows: int,
    num_reqs: int,
    starts: torch.Tensor,  # [max_num_reqs + 1]
    lengths: torch.Tensor,  # [max_num_reqs]
    arange: torch.Tensor,  # [max_num_reqs + 1]
) -> None:
    """Make ``metadata`` describe a draft step with one row for each request.

    Args:
        metadata: vllm-ascend's metadata of a step of any width; changed in place.
        num_rows: number of rows of the step, with padding.
        num_reqs: number of rows that belong to a request.
        starts: int32, the step's buffer of query start rows, which a graph reads.
        lengths: int32, the step's buffer of lengths, which a graph reads and vllm-ascend fills.
        arange: int32, 0, 1, 2, …
    """
    metadata.num_reqs = num_rows
    metadata.num_actual_tokens = num_reqs
    metadata.num_input_tokens = num_rows
    metadata.max_query_len = 1
    metadata.query_start_loc_cpu = torch.arange(num_rows + 1, dtype=torch.int32)
    metadata.query_start_loc = starts[: num_rows + 1]
    metadata.query_start_loc.copy_(arange[: num_rows + 1])
    metadata.seq_lens = lengths[:num_rows]
    metadata.block_table_tensor = metadata.block_table_tensor[:num_rows]


class LaterStepMetadataMixin(StockProposer):
    """Overrides of the methods in which vllm-ascend builds metadata of draft steps 2 to K."""

    runner: Runner
    uses_own_loop: bool
    vllm_config: VllmConfig
    tree: TreeDrafts | None
    later_passes: Callable[[int], list[Pass]]

    def attn_update_stack_num_spec_norm(
        self,
        draft_index: int,
        old_common_metadata: Any,
        batch_size: int,
        input_batch_size: int,
        used_update_positions: torch.Tensor,  # [num_reqs], or [3, num_reqs]
        aclgraph_runtime_mode: CUDAGraphMode,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Build the metadata to run draft steps 2 to K; the signature is vllm-ascend's."""
        if draft_index == 1:
            old_common_metadata = without_rejected(self, old_common_metadata, batch_size)
            if self.vllm_config.model_config.uses_mrope:
                # vllm-ascend computes slots from them, and counts them up for the steps after.
                used_update_positions.copy_(old_common_metadata.seq_lens[:batch_size] - 1)
        if self.uses_own_loop:
            # A full graph keeps its captured width.
            is_full = aclgraph_runtime_mode == CUDAGraphMode.FULL
            input_batch_size = self._captured_reqs(input_batch_size) if is_full else batch_size
        return super().attn_update_stack_num_spec_norm(  # type: ignore[misc]
            draft_index,
            old_common_metadata,
            batch_size,
            input_batch_size,
            used_update_positions,
            aclgraph_runtime_mode,
            *args,
            **kwargs,
        )

    def _common_attn_metadata_for_draft_group(
        self,
        common_attn_metadata: Any,
        attn_group: Any,
        num_input_tokens: int,
        draft_index: int = 0,
    ) -> Any:
        """Adapt the metadata to run draft steps 2 to K; the signature is vllm-ascend's.

        vllm-ascend calls this last before it passes a step's metadata to the attention backend.
        """
        metadata = super()._common_attn_metadata_for_draft_group(  # type: ignore[misc]
            common_attn_metadata, attn_group, num_input_tokens, draft_index
        )
        if self.uses_own_loop and draft_index > 0:
            self._describe(metadata, draft_index, num_input_tokens, metadata.num_actual_tokens)
        return metadata

    def _prepare_dcp_draft_dummy_metadata(
        self, common_attn_metadata: Any, draft_index: int
    ) -> None:
        """Adapt the metadata to capture a step; the signature is vllm-ascend's.

        vllm-ascend calls this for each step that it captures, for decode context parallelism.
        """
        if not self.uses_own_loop:
            super()._prepare_dcp_draft_dummy_metadata(common_attn_metadata, draft_index)  # type: ignore[misc]
            return
        if draft_index == 0:
            return
        metadata = common_attn_metadata
        if draft_index == 1:
            metadata.num_reqs = self._captured_reqs(metadata.num_input_tokens)
        self._describe(metadata, draft_index, metadata.num_reqs, metadata.num_reqs)

    def _maybe_update_metadata(
        self, att_backend: Any, multi_steps_attn_metadata: list[dict[str, Any]]
    ) -> None:
        """Note what a replay updates; the signature is vllm-ascend's."""
        super()._maybe_update_metadata(  # type: ignore[misc]
            att_backend, self._by_pass(multi_steps_attn_metadata)
        )

    def _update_full_graph_params(
        self,
        forward_context: Any,
        num_tokens: int,
        draft_attn_metadatas: list[dict[str, Any]] | None = None,
    ) -> None:
        """Update a replay; the signature is vllm-ascend's."""
        by_pass = None if draft_attn_metadatas is None else self._by_pass(draft_attn_metadatas)
        super()._update_full_graph_params(forward_context, num_tokens, by_pass)  # type: ignore[misc]

    def _by_pass(self, by_depth: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the metadata of each pass in the order in which a graph has captured them.

        The passes of a tree that are equally deep share it.
        """
        if self.tree is None:
            return by_depth
        later = self.later_passes(len(by_depth))
        return [*by_depth[:1], *(by_depth[each.depth + 1] for each in later)]

    def _describe(self, metadata: Any, draft_index: int, num_rows: int, num_reqs: int) -> None:
        describe_one_row_each(
            metadata,
            num_rows,
            num_reqs,
            starts=self.query_start_loc_group[draft_index],
            lengths=self.seq_lens_group[draft_index],
            arange=self.arange,
        )

    def _captured_reqs(self, num_input_tokens: int) -> int:
        """Return the number of requests in a full graph of this width."""
        return max(num_input_tokens // self.runner.uniform_decode_query_len, 1)
