"""Graphs of whole decode batches where K changes from step to step.

vLLM has such graphs for one K only (``CudagraphDispatcher`` knows one ``uniform_decode_query_len``)
and does without them where K changes. Here the number of rows for each request belongs to a step,
and each K has the graphs that were planned for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

from vllm_ascend_spec.config.capture import sizes_by_k

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class TierDispatcher(CudagraphDispatcher):
    """vLLM's choice of a graph, with graphs of whole decode batches for several K.

    ``uniform_decode_query_len``, which vLLM reads the requests of a decode batch by, is that of the
    step: whoever prepares one sets it.

    Args:
        vllm_config: of the engine.
        sizes: in tokens, by the rows of each request, ascending.
    """

    def __init__(self, vllm_config: VllmConfig, sizes: Mapping[int, tuple[int, ...]]) -> None:
        super().__init__(vllm_config)
        self.sizes = sizes
        self._all = list(self.compilation_config.cudagraph_capture_sizes or ())

    def initialize_cudagraph_keys(
        self, cudagraph_mode: CUDAGraphMode, uniform_decode_query_len: int = 1
    ) -> None:
        """Note which graphs there are; the signature is vLLM's."""
        # vLLM and vllm-ascend have rounded the sizes to those of the most drafts.
        self.compilation_config.cudagraph_capture_sizes = [*self._all]
        self.compilation_config.max_cudagraph_capture_size = self._all[-1]
        super().initialize_cudagraph_keys(cudagraph_mode, uniform_decode_query_len)
        is_apart = cudagraph_mode.separate_routine()
        if not is_apart or cudagraph_mode.decode_mode() != CUDAGraphMode.FULL:
            return
        self.cudagraph_keys[CUDAGraphMode.FULL].clear()
        for rows, sizes in self.sizes.items():
            for size, loras in product(sizes, self._get_lora_cases()):
                key = _whole_batch(size, rows, has_lora=loras > 0, num_active_loras=loras)
                self.add_cudagraph_key(CUDAGraphMode.FULL, key)

    def _create_padded_batch_descriptor(
        self,
        num_tokens: int,
        uniform_decode: bool,
        has_lora: bool,
        num_active_loras: int = 0,
    ) -> BatchDescriptor:
        rows = self.uniform_decode_query_len
        size = next((size for size in self.sizes.get(rows, ()) if size >= num_tokens), None)
        if uniform_decode and size is not None:
            return _whole_batch(size, rows, has_lora=has_lora, num_active_loras=num_active_loras)
        return super()._create_padded_batch_descriptor(
            num_tokens, False, has_lora, num_active_loras
        )


def _whole_batch(size: int, rows: int, **lora: Any) -> BatchDescriptor:
    return BatchDescriptor(num_tokens=size, num_reqs=size // rows, uniform=True, **lora)


class GraphTiersMixin:
    """Mix into a model runner of vLLM's or vllm-ascend's, before it in the bases."""

    cudagraph_dispatcher: Any
    compilation_config: Any
    uniform_decode_query_len: int
    vllm_config: VllmConfig

    def take_up_tiers(self) -> None:
        """Let each K have its graphs, where they were laid down; after stock ``__init__``."""
        if found := sizes_by_k(self.compilation_config):
            sizes = {k + 1: row for k, row in found.items()}
            self.cudagraph_dispatcher = TierDispatcher(self.vllm_config, sizes)

    def _determine_batch_execution_and_padding(self, *args: Any, **kwargs: Any) -> Any:
        """Choose a graph as vLLM does; its signature is vLLM's, and it is called by names."""
        # Dummy runs say themselves what they are.
        if kwargs.get("force_uniform_decode") is None:
            self._serve(int(kwargs["max_num_scheduled_tokens"]))
        return super()._determine_batch_execution_and_padding(  # type: ignore[misc]
            *args, **kwargs
        )

    def _serve(self, rows: int) -> None:
        """Let requests of whole decode batches have that many rows, if there are graphs for it."""
        dispatcher = self.cudagraph_dispatcher
        if isinstance(dispatcher, TierDispatcher) and dispatcher.sizes.get(rows):
            self.uniform_decode_query_len = dispatcher.uniform_decode_query_len = rows

    def _warmup_and_capture(self, desc: BatchDescriptor, *args: Any, **kwargs: Any) -> None:
        """Capture a graph as vLLM does; the signature is vLLM's."""
        with self._serving(desc):
            super()._warmup_and_capture(desc, *args, **kwargs)  # type: ignore[misc]

    @contextmanager
    def _serving(self, desc: BatchDescriptor) -> Iterator[None]:
        """Let a batch that is captured have the rows that it is for."""
        before = self.uniform_decode_query_len
        if desc.uniform and desc.num_reqs:
            self._serve(desc.num_tokens // desc.num_reqs)
        try:
            yield
        finally:
            self._serve(before)
