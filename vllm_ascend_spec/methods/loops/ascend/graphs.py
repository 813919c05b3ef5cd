"""Graphs of the draft steps for a K that changes from step to step.

vllm-ascend records all draft steps as one graph, for a fixed number of steps. The graph itself
holds its replay parameters (``vllm_ascend/compilation/updatable_graph.py:UpdatableGraph``), so
graphs of different K can coexist. Those of a chain and of a tree may have equally many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

from vllm_ascend_spec.methods.loops.ascend.stock import StockProposer

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig


class DraftGraphs:
    """Replaces vllm-ascend's graph wrapper with one wrapper for each K.

    Args:
        graphs: graph wrappers by K.
        k: returns the number of drafts of the current engine step.
    """

    def __init__(self, graphs: dict[int, ACLGraphWrapper], k: Callable[[], int]) -> None:
        self._graphs = graphs
        self._k = k

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, record or replay the draft steps."""
        return self._now()(*args, **kwargs)

    def update_draft_model_metadata(self, draft_model_metadata: list[dict[str, Any]]) -> None:
        """Set the metadata that a replay updates."""
        self._now().update_draft_model_metadata(draft_model_metadata)

    def set_attn_backend(self, attn_backend: Any) -> None:
        """Set the attention backend whose operations a replay updates."""
        self._now().set_attn_backend(attn_backend)

    def set_update_stream(self, update_stream: Any) -> None:
        """Set the stream on which a replay is updated."""
        for graph in self._graphs.values():
            graph.set_update_stream(update_stream)

    def _now(self) -> ACLGraphWrapper:
        return self._graphs[self._k()]


class GraphsByLengthMixin(StockProposer):
    """Mixin for subclasses of ``AscendSpecDecodeBaseProposer``; goes before it in the bases.

    Attributes:
        lengths: values of K whose draft steps have graphs, ascending; empty if K is fixed and
            vllm-ascend's own graph is used.
    """

    vllm_config: VllmConfig
    lengths: Sequence[int] = ()
    last_graph: str
    num_drafts: int
    num_steps: Callable[[int], int]

    def rows_to_draft_from(
        self,
        token_indices_to_sample: torch.Tensor,  # [num_reqs]
    ) -> torch.Tensor:
        """Return the rows that drafts are made from, [num_reqs] with padding.

        vllm-ascend derives their number from the number of draft steps, which does not give the
        batch size if K changes.
        """
        if not self.lengths:
            return token_indices_to_sample
        context = get_forward_context()
        if context.cudagraph_runtime_mode != CUDAGraphMode.FULL:
            return token_indices_to_sample
        return self.token_indices_to_sample[: context.batch_descriptor.num_reqs]

    # inspect has to report the signature and source of vllm-ascend's method.
    @wraps(AscendSpecDecodeBaseProposer.load_model, assigned=())
    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model as vllm-ascend does, which also wraps the draft steps for graphs."""
        super().load_model(*args, **kwargs)  # type: ignore[misc]
        if self.lengths and isinstance(self._runnable, ACLGraphWrapper):
            graphs = {length: self._graph() for length in self.lengths}
            self._runnable: Any = DraftGraphs(graphs, lambda: self.num_drafts)

    def _graph(self) -> ACLGraphWrapper:
        """Build a wrapper as ``AscendSpecDecodeBaseProposer.load_model`` does."""
        return ACLGraphWrapper(
            self._run_merged_draft,  # type: ignore[attr-defined]
            self.vllm_config,
            runtime_mode=CUDAGraphMode.FULL,
            use_eagle=self.use_eagle,  # type: ignore[attr-defined]
            enable_enpu=self.enable_enpu,  # type: ignore[attr-defined]
        )

    @wraps(AscendSpecDecodeBaseProposer.dummy_run, assigned=())
    def dummy_run(self, *args: Any, **kwargs: Any) -> None:
        """Run on dummy input; at capture record a graph for each K."""
        for _ in self._each_length(kwargs.get("aclgraph_runtime_mode")):
            super().dummy_run(*args, **kwargs)  # type: ignore[misc]
        self.last_graph = ""

    def _each_length(self, mode: CUDAGraphMode | None) -> Iterator[int]:
        if mode != CUDAGraphMode.FULL or not self.lengths:
            yield self.num_speculative_tokens
            return
        before = self.num_drafts
        for length in self.lengths:
            self.num_speculative_tokens = self.num_steps(length)
            yield length
        self.num_speculative_tokens = self.num_steps(before)
