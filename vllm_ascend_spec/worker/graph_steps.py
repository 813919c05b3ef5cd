"""Report whether each step replays a graph, and if not why: to the log once, to the metrics."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.config import CUDAGraphMode

from vllm_ascend_spec.graphs.step import (
    DRAFT_METRIC,
    METRIC,
    NO_GRAPH,
    PROMPTS,
    GraphStep,
    step_of,
)
from vllm_ascend_spec.log import log_once


class GraphStepsMixin:
    """Mixin for a model runner of vLLM or vllm-ascend; must come before it in the bases."""

    compilation_config: Any
    input_batch: Any
    drafter: Any
    _graph_before: str = NO_GRAPH
    uniform_decode_query_len: int

    def _determine_batch_execution_and_padding(self, *args: Any, **kwargs: Any) -> Any:
        """Choose a graph as vLLM does; the signature is vLLM's, called with keyword arguments."""
        chosen = super()._determine_batch_execution_and_padding(  # type: ignore[misc]
            *args, **kwargs
        )
        # Only dummy runs pass this argument; in a mode without graphs none is missing.
        is_dummy = kwargs.get("force_uniform_decode") is not None
        if is_dummy or self.compilation_config.cudagraph_mode == CUDAGraphMode.NONE:
            return chosen
        mode, descriptor, *between, _ = chosen
        step = replace(self._step(mode.name, kwargs), draft=self._draft_before())
        self._graph_before = step.graph
        if step.graph == NO_GRAPH:
            # In most modes prompts have no graph, which is expected.
            level = logging.INFO if step.reason == PROMPTS else logging.WARNING
            log_once(level, f"A step ran without a graph: {step.reason}. {METRIC} counts them.")
        num_tokens, padded = kwargs["num_tokens"], descriptor.num_tokens
        return (
            mode,
            descriptor,
            *between,
            CUDAGraphStat(
                num_unpadded_tokens=num_tokens,
                num_padded_tokens=padded,
                num_paddings=padded - num_tokens,
                runtime_mode=str(step),
            ),
        )

    def _draft_before(self) -> str:
        """Return the graph of the draft in the previous step; empty if no model drafted."""
        drafter = getattr(self, "drafter", None)
        if drafter is None or not (draft := getattr(drafter, "last_graph", "")):
            return ""
        drafter.last_graph = ""
        if draft == NO_GRAPH != self._graph_before:
            log_once(
                logging.WARNING,
                "The target replayed a graph, and its drafts were made without one. "
                f"{DRAFT_METRIC} counts such steps.",
            )
        return draft

    def _step(self, graph: str, kwargs: dict[str, Any]) -> GraphStep:
        batch, num_reqs = self.input_batch, kwargs["num_reqs"]
        computed = batch.num_computed_tokens_cpu[:num_reqs]
        return step_of(
            graph,
            num_tokens=kwargs["num_tokens"],
            num_reqs=num_reqs,
            longest=int(kwargs["max_num_scheduled_tokens"]),
            has_prompts=bool((computed < batch.num_prompt_tokens[:num_reqs]).any()),
            num_drafts=self.uniform_decode_query_len - 1,
            largest=self.compilation_config.max_cudagraph_capture_size or 0,
        )
