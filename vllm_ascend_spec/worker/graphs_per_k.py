"""Full graphs of decode batches where K changes from step to step.

vLLM has such graphs for one K only (``CudagraphDispatcher`` knows one ``uniform_decode_query_len``)
and uses none if K changes. Here each step has its own number of rows per request, and each K has
the graphs that were planned for it.
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


class PerKDispatcher(CudagraphDispatcher):
    """vLLM's graph dispatcher with full graphs of decode batches for several K.

    ``uniform_decode_query_len``, the number of rows by which vLLM recognizes a request of a decode
    batch, is that of the current step: whoever prepares a step sets it.

    Args:
        vllm_config: configuration of the engine.
        sizes: capture sizes in tokens, ascending, by the number of rows per request.
    """

    def __init__(self, vllm_config: VllmConfig, sizes: Mapping[int, tuple[int, ...]]) -> None:
        super().__init__(vllm_config)
        self.sizes = sizes
        self._all = list(self.compilation_config.cudagraph_capture_sizes or ())

    def initialize_cudagraph_keys(
        self, cudagraph_mode: CUDAGraphMode, uniform_decode_query_len: int = 1
    ) -> None:
        """Register the graphs that exist; the signature is vLLM's."""
        # vLLM and vllm-ascend have rounded the sizes for the largest K.
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


class GraphsPerKMixin:
    """Mixin for a model runner of vLLM or vllm-ascend; must come before it in the bases."""

    cudagraph_dispatcher: Any
    compilation_config: Any
    uniform_decode_query_len: int
    vllm_config: VllmConfig

    def take_up_tiers(self) -> None:
        """Use graphs for each K if sizes for them were set; call after the stock ``__init__``."""
        if found := sizes_by_k(self.compilation_config):
            sizes = {k + 1: row for k, row in found.items()}
            self.cudagraph_dispatcher = PerKDispatcher(self.vllm_config, sizes)

    def _determine_batch_execution_and_padding(self, *args: Any, **kwargs: Any) -> Any:
        """Choose a graph as vLLM does; the signature is vLLM's, called with keyword arguments."""
        # Only dummy runs pass this argument.
        if kwargs.get("force_uniform_decode") is None:
            self._serve(int(kwargs["max_num_scheduled_tokens"]))
        return super()._determine_batch_execution_and_padding(  # type: ignore[misc]
            *args, **kwargs
        )

    def _serve(self, rows: int) -> None:
        """Set the number of rows per request in decode batches, if there are graphs for it."""
        dispatcher = self.cudagraph_dispatcher
        if isinstance(dispatcher, PerKDispatcher) and dispatcher.sizes.get(rows):
            self.uniform_decode_query_len = dispatcher.uniform_decode_query_len = rows

    def _warmup_and_capture(self, desc: BatchDescriptor, *args: Any, **kwargs: Any) -> None:
        """Capture a graph as vLLM does; the signature is vLLM's."""
        with self._serving(desc):
            super()._warmup_and_capture(desc, *args, **kwargs)  # type: ignore[misc]

    @contextmanager
    def _serving(self, desc: BatchDescriptor) -> Iterator[None]:
        """Set the rows per request of a graph while it is captured."""
        before = self.uniform_decode_query_len
        if desc.uniform and desc.num_reqs:
            self._serve(desc.num_tokens // desc.num_reqs)
        try:
            yield
        finally:
            self._serve(before)
