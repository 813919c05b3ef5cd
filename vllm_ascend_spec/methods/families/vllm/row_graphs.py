"""Graphs for the later passes of a draft, which have one row for each request.

vLLM captures a draft at the target's sizes, which are for K+1 rows of each request
(``vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer.initialize_cudagraph_keys``). So
a pass of one row each is padded to the next of these: with K=3 one request to four rows.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import CUDAGraphMode
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

from vllm_ascend_spec.config.capture import draft_rows

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class WidthDispatcher(CudagraphDispatcher):
    """vLLM's choice of a graph, with further widths than those of the target.

    Args:
        vllm_config: of the engine.
        widths: in tokens.
    """

    def __init__(self, vllm_config: VllmConfig, widths: Collection[int]) -> None:
        super().__init__(vllm_config)
        self._widths = widths

    def initialize_cudagraph_keys(
        self, cudagraph_mode: CUDAGraphMode, uniform_decode_query_len: int = 1
    ) -> None:
        """Note which graphs there are; the signature is vLLM's."""
        # The target reads the same settings, and is not captured at these widths.
        settings = copy(self.vllm_config.compilation_config)
        sizes = settings.cudagraph_capture_sizes or []
        settings.cudagraph_capture_sizes = sorted({*sizes, *self._widths})
        self.compilation_config = settings
        super().initialize_cudagraph_keys(cudagraph_mode, uniform_decode_query_len)


class RowGraphsMixin:
    """Mix into vLLM's proposer with a draft model, before it in the bases."""

    vllm_config: VllmConfig
    cudagraph_dispatcher: CudagraphDispatcher

    def initialize_cudagraph_keys(self, cudagraph_mode: CUDAGraphMode) -> None:
        """Note which graphs the draft has; the signature is vLLM's."""
        if rows := draft_rows(self.vllm_config.compilation_config):
            self.cudagraph_dispatcher = WidthDispatcher(self.vllm_config, rows.values())
        super().initialize_cudagraph_keys(cudagraph_mode)  # type: ignore[misc]

    @torch.inference_mode()
    def dummy_run(
        self,
        num_tokens: int,
        use_cudagraphs: bool = True,
        is_graph_capturing: bool = False,
        slot_mappings: Any = None,
    ) -> None:
        """Run, and capture the later passes beside the first one; the signature is vLLM's."""
        run = super().dummy_run  # type: ignore[misc]
        run(num_tokens, use_cudagraphs, is_graph_capturing, slot_mappings)
        rows = draft_rows(self.vllm_config.compilation_config).get(num_tokens)
        if rows is not None and use_cudagraphs and is_graph_capturing:
            # What a kernel sets up in its first run must not be recorded.
            run(rows, False, is_graph_capturing, slot_mappings)
            run(rows, use_cudagraphs, is_graph_capturing, slot_mappings)
