"""Report each step to the metrics: its graph, or why it has none, and where the time went.

A step's times and the graph of its draft are known only when it ends, so the next step reports
them. A step without a graph is also logged, each reason once.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.config import CUDAGraphMode

from vllm_ascend_spec.graphs.step import describe_graph
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.metrics.step_metrics import DRAFT_GRAPH_STEPS, GRAPH_STEPS
from vllm_ascend_spec.step_report import NO_GRAPH, PROMPTS, StepReport
from vllm_ascend_spec.worker.stopwatch import StepWatches


class StepReportsMixin:
    """Mixin for a model runner of vLLM or vllm-ascend; must come before it in the bases.

    Attributes:
        tree_depth: sum of the depths of trees since the last report.
    """

    compilation_config: Any
    input_batch: Any
    drafter: Any
    _graph_before: str = NO_GRAPH
    uniform_decode_query_len: int
    tree_depth: int = 0

    @cached_property
    def watches(self) -> StepWatches:
        """Stopwatches of this runner; the code for a part of a step enters that part's."""
        return StepWatches()

    def execute_model(self, *args: Any, **kwargs: Any) -> Any:
        """Do what vLLM does; the signature is vLLM's."""
        with self.watches.step:
            return super().execute_model(*args, **kwargs)  # type: ignore[misc]

    def _determine_batch_execution_and_padding(self, *args: Any, **kwargs: Any) -> Any:
        """Choose a graph as vLLM does; the signature is vLLM's, called with keyword arguments."""
        chosen = super()._determine_batch_execution_and_padding(  # type: ignore[misc]
            *args, **kwargs
        )
        if kwargs.get("force_uniform_decode") is not None:  # a dummy run
            return chosen
        mode, descriptor, *between, stat = chosen
        if self.compilation_config.cudagraph_mode != CUDAGraphMode.NONE:
            num_tokens, padded = kwargs["num_tokens"], descriptor.num_tokens
            sizes = num_tokens, padded, padded - num_tokens
            report = self._report_graph(mode.name, kwargs)
        elif stat is None:  # of an engine without graphs
            sizes, report = (0, 0, 0), StepReport()
        else:
            sizes = stat.num_unpadded_tokens, stat.num_padded_tokens, stat.num_paddings
            report = StepReport(graph=stat.runtime_mode)
        report.tree_depth, self.tree_depth = self.tree_depth, 0
        report.step_us = self.watches.step.take()
        report.verification_us = self.watches.verification.take()
        report.drafting_us = self.watches.drafting.take()
        return (mode, descriptor, *between, CUDAGraphStat(*sizes, report.encode()))

    def _report_graph(self, graph: str, kwargs: dict[str, Any]) -> StepReport:
        """Return a report of the step's graph, and log why it has none."""
        batch, num_reqs = self.input_batch, kwargs["num_reqs"]
        computed = batch.num_computed_tokens_cpu[:num_reqs]
        report = describe_graph(
            graph,
            num_tokens=kwargs["num_tokens"],
            num_reqs=num_reqs,
            longest=int(kwargs["max_num_scheduled_tokens"]),
            has_prompts=bool((computed < batch.num_prompt_tokens[:num_reqs]).any()),
            graph_k=self.uniform_decode_query_len - 1,
            largest=self.compilation_config.max_cudagraph_capture_size or 0,
        )
        report.draft_graph = self._draft_before()
        self._graph_before = graph
        if report.no_graph_reason:
            # In most modes prompts have no graph, which is expected.
            level = logging.INFO if report.no_graph_reason == PROMPTS else logging.WARNING
            log_once(
                level,
                f"A step ran without a graph: {report.no_graph_reason}. {GRAPH_STEPS} counts them.",
            )
        return report

    def _draft_before(self) -> str:
        """Return the graph of the draft in the previous step; empty if no model drafted."""
        drafter = getattr(self, "drafter", None)
        if drafter is None or not (draft := getattr(drafter, "last_graph", "")):
            return ""
        drafter.last_graph = ""
        if draft == NO_GRAPH != self._graph_before:
            log_once(
                logging.WARNING,
                "The target replayed a graph, but its drafts were made without one. "
                f"{DRAFT_GRAPH_STEPS} counts such steps.",
            )
        return draft
