"""Graphs for draft steps 2 to K, which have one row per request.

vLLM captures a draft at the target's sizes, which are made for K+1 rows per request
(``vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer.initialize_cudagraph_keys``). A
step with one row per request is padded to the next of these: with K=3 one request to four rows.
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
    """vLLM's graph dispatcher, with capture sizes in addition to the target's.

    Args:
        vllm_config: configuration of the engine.
        widths: additional capture sizes in tokens.
    """

    def __init__(self, vllm_config: VllmConfig, widths: Collection[int]) -> None:
        super().__init__(vllm_config)
        self._widths = widths

    def initialize_cudagraph_keys(
        self, cudagraph_mode: CUDAGraphMode, uniform_decode_query_len: int = 1
    ) -> None:
        """Register the graphs to capture; the signature is vLLM's."""
        # A copy, because the target reads the same settings and is not captured at these widths.
        settings = copy(self.vllm_config.compilation_config)
        sizes = settings.cudagraph_capture_sizes or []
        settings.cudagraph_capture_sizes = sorted({*sizes, *self._widths})
        self.compilation_config = settings
        super().initialize_cudagraph_keys(cudagraph_mode, uniform_decode_query_len)


class RowGraphsMixin:
    """Mixin for vLLM's proposers with a draft model; goes before them in the bases."""

    vllm_config: VllmConfig
    cudagraph_dispatcher: CudagraphDispatcher

    def initialize_cudagraph_keys(self, cudagraph_mode: CUDAGraphMode) -> None:
        """Register the draft's graphs; the signature is vLLM's."""
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
        """Run, and also capture the graphs of draft steps 2 to K; the signature is vLLM's."""
        run = super().dummy_run  # type: ignore[misc]
        run(num_tokens, use_cudagraphs, is_graph_capturing, slot_mappings)
        rows = draft_rows(self.vllm_config.compilation_config).get(num_tokens)
        if rows is not None and use_cudagraphs and is_graph_capturing:
            # The set-up that kernels do in their first run must not be recorded.
            run(rows, False, is_graph_capturing, slot_mappings)
            run(rows, use_cudagraphs, is_graph_capturing, slot_mappings)
