"""The window of the draft's attention, in the metadata of vLLM's proposers."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.methods.loops.vllm.stock import StockProposer
from vllm_ascend_spec.methods.loops.window import without_first_blocks
from vllm_ascend_spec.ops.send import send

if TYPE_CHECKING:
    from vllm.v1.attention.backend import CommonAttentionMetadata

    from vllm_ascend_spec.methods.drafter import Runner
    from vllm_ascend_spec.methods.loops.window import DraftWindow


class WindowedMetadataMixin(StockProposer):
    """Mixin for vLLM's proposers with a draft model; goes before them in the bases."""

    runner: Runner
    window: DraftWindow
    # [num_reqs], tokens left out in this step; None for the whole text.
    _left_out: torch.Tensor | None = None

    def texts_of(
        self,
        metadata: CommonAttentionMetadata,
        num_rejected: torch.Tensor | None,  # [num_reqs]
    ) -> torch.Tensor | None:
        """Return the accepted tokens of each request, [num_reqs], from the target's metadata.

        None without a window, which alone needs them.
        """
        if self.window.size is None:
            return None
        lengths = metadata.seq_lens
        return lengths.clone() if num_rejected is None else lengths - num_rejected

    def set_window(
        self,
        texts: torch.Tensor | None,  # [num_reqs]
        metadata: CommonAttentionMetadata,
    ) -> None:
        """Set the window of the draft steps of an engine step.

        Args:
            texts: int32, accepted tokens of each request, see :meth:`texts_of`; None without a
                window.
            metadata: of draft step 1, for the whole text.
        """
        self._left_out = None
        if texts is None:
            return
        counts = self.runner.input_batch.num_prompt_tokens[: texts.shape[0]]
        prompts = send(torch.from_numpy(counts.copy()), texts.device)
        starts = metadata.query_start_loc
        self._left_out = self.window.left_out(texts, starts, prompts, self.block_size)

    def metadata_by_layer(
        self, metadata: CommonAttentionMetadata, draft_index: int = 0
    ) -> dict[str, Any]:
        """Build the attention metadata of a pass within the window, by layer name.

        Args:
            metadata: of the pass, for the whole text; it is not modified.
            draft_index: number of the draft step, from 0 on.
        """
        if self._left_out is not None:
            metadata = self._windowed(metadata, self._left_out)
        return self.build_per_group_and_layer_attn_metadata(metadata, draft_index=draft_index)[1]

    def _windowed(
        self,
        metadata: CommonAttentionMetadata,
        left_out: torch.Tensor,  # [num_reqs]
    ) -> CommonAttentionMetadata:
        """Return a copy of the metadata without what is left out.

        Bounds of the lengths stay: they are bounds of the shorter lengths, too.
        """
        lengths, table = metadata.seq_lens, metadata.block_table_tensor
        cut = copy(metadata)
        # A row past the end of the context has length 1.
        cut.seq_lens = (lengths - left_out.to(lengths.dtype)).clamp_(min=1)
        cut.block_table_tensor = without_first_blocks(table, left_out, self.block_size)
        if metadata.seq_lens_cpu_upper_bound is lengths:
            cut.seq_lens_cpu_upper_bound = cut.seq_lens
        # vLLM computes it from the lengths when it is first asked for.
        cut._num_computed_tokens_cache = None
        return cut
