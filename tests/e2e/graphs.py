"""A fake for CUDA graphs of a draft model, for a CPU.

It keeps the rules that make a replay go wrong where a draft loop breaks them:

* a graph reads the tensors that it was captured with, whatever it is called with later;
* its results are in the memory that the capture used, and the next replay overwrites them;
* graphs share a pool: a replay of one destroys the results of all others;
* nothing may be captured after the engine has started.

vLLM captures the pieces between attention layers (PIECEWISE). Here the whole draft model is one
graph that looks its attention metadata up in the forward context at each replay, as the pieces'
attention does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor, get_forward_context

from vllm_ascend_spec.config.capture import set_draft_rows
from vllm_ascend_spec.methods.loops.vllm.module_steps import ModuleSteps

Outputs = torch.Tensor | tuple[torch.Tensor, ...]


@dataclass
class Graph:
    """One captured size.

    Attributes:
        inputs: the tensors of the capture, by argument.
        outputs: what the capture returned.
    """

    inputs: dict[str, torch.Tensor | None]
    outputs: tuple[torch.Tensor, ...]
    is_tuple: bool

    def returned(self) -> Outputs:
        """Return the results as the model does."""
        return self.outputs if self.is_tuple else self.outputs[0]


@dataclass
class GraphedModel:
    """Stands in for ``drafter.model`` of an engine with graphs.

    Attributes:
        model: the draft model.
        captured: graphs by the key that vLLM's dispatcher gave.
        replayed: keys of the replays, in order.
        strangers: arguments of replays that were not the tensors of the capture.
        eager_widths: number of tokens of each pass without a graph.
        is_capturing: whether graphs may be captured.
    """

    model: Any
    captured: dict[BatchDescriptor, Graph] = field(default_factory=dict)
    replayed: list[BatchDescriptor] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    eager_widths: list[int] = field(default_factory=list)
    is_capturing: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, **inputs: torch.Tensor | None) -> Outputs:
        """Run, capture or replay, as ``vllm.compilation.cuda_graph.CUDAGraphWrapper`` does."""
        context = get_forward_context()
        if context.cudagraph_runtime_mode != CUDAGraphMode.PIECEWISE:
            self.eager_widths.append(inputs["positions"].shape[0])  # type: ignore[union-attr]
            return self.model(**inputs)
        key = context.batch_descriptor
        assert key is not None
        if key not in self.captured:
            assert self.is_capturing, f"no graph for {key}, and the engine has started"
            return self._capture(key, inputs)
        return self._replay(key, inputs)

    def _capture(self, key: BatchDescriptor, inputs: dict[str, Any]) -> Outputs:
        outputs = self.model(**inputs)
        is_tuple = isinstance(outputs, tuple)
        graph = Graph(inputs, outputs if is_tuple else (outputs,), is_tuple)
        self.captured[key] = graph
        return graph.returned()

    def _replay(self, key: BatchDescriptor, inputs: dict[str, Any]) -> Outputs:
        graph = self.captured[key]
        self.replayed.append(key)
        for name, tensor in inputs.items():
            if not is_same_memory(tensor, graph.inputs[name]):
                self.strangers.append(f"{name} of {key.num_tokens} tokens")
        outputs = self.model(**graph.inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        self._use_pool()
        for kept, new in zip(graph.outputs, outputs, strict=True):
            kept.copy_(new)
        return graph.returned()

    def _use_pool(self) -> None:
        """Destroy what earlier replays returned."""
        for graph in self.captured.values():
            for output in graph.outputs:
                output.fill_(float("nan"))


def is_same_memory(tensor: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Tell whether two arguments are the same view of the same memory."""
    if tensor is None or other is None:
        return tensor is other
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) == (
        other.data_ptr(),
        other.shape,
        other.stride(),
        other.dtype,
    )


@contextmanager
def graphs_of(
    drafter: Any, sizes: list[int], rows: Mapping[int, int] | None = None
) -> Iterator[GraphedModel]:
    """Give a drafter of a running engine graphs, captured as vLLM's runner captures them.

    Its keys come from ``initialize_cudagraph_keys`` and its captures from ``dummy_run``, largest
    first, as in ``GPUModelRunner._capture_cudagraphs``.

    Args:
        drafter: of the engine.
        sizes: that the target would be captured at, in tokens.
        rows: widths of draft steps 2 to K by size, as the platform lays them down.
    """
    config = drafter.vllm_config.compilation_config
    dispatcher = drafter.cudagraph_dispatcher
    was = config.cudagraph_capture_sizes, config.max_cudagraph_capture_size
    # vLLM's own loop has none.
    model, steps = drafter.model, vars(drafter).get("steps")
    graphed = GraphedModel(model)
    config.cudagraph_capture_sizes, config.max_cudagraph_capture_size = sizes, max(sizes)
    set_draft_rows(config, rows or {})
    try:
        drafter.initialize_cudagraph_keys(CUDAGraphMode.FULL_AND_PIECEWISE)
        # A GPU's draft is called through its modules.
        drafter.model, drafter.steps = graphed, ModuleSteps(drafter)
        graphed.is_capturing = True
        for size in sorted(sizes, reverse=True):
            drafter.dummy_run(size, use_cudagraphs=True, is_graph_capturing=True)
        graphed.is_capturing = False
        yield graphed
    finally:
        drafter.model, drafter.steps = model, steps
        config.cudagraph_capture_sizes, config.max_cudagraph_capture_size = was
        set_draft_rows(config, {})
        drafter.cudagraph_dispatcher = dispatcher
        for keys in dispatcher.cudagraph_keys.values():
            keys.clear()
        drafter.initialize_cudagraph_keys(CUDAGraphMode.NONE)
