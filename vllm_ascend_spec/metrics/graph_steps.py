"""Counters of steps, by graph or the reason for having none, and of decode batches.

``vllm:spec_decode_graph_steps{graph=…,reason=…}`` counts steps,
``vllm:spec_decode_draft_graph_steps{graph=…}`` steps in which a model drafted, and the histogram
``vllm:spec_decode_batch_requests{k=…}`` the requests of decode batches; ``plan --load`` reads it.
"""

from __future__ import annotations

import functools
from typing import Any

from vllm_ascend_spec.graphs.distribution_metrics import REQUESTS
from vllm_ascend_spec.graphs.step import DRAFT_METRIC as DRAFTS
from vllm_ascend_spec.graphs.step import METRIC as STEPS
from vllm_ascend_spec.graphs.step import GraphStep
from vllm_ascend_spec.metrics.group import Group, counter, histogram

# Each common size of a decode batch has its own bucket.
BUCKETS = (*range(1, 17), *range(20, 65, 4), *range(80, 257, 16), 384, 512, 768, 1024)


class GraphSteps(Group):
    """Two counters and a histogram; they have no samples if no engine has graphs."""

    def __init__(self) -> None:
        self.steps = counter(
            STEPS,
            "Steps by the graph that they replayed, and why they had none.",
            "graph",
            "reason",
        )
        self.drafts = counter(
            DRAFTS,
            "Steps in which a model drafted, by the graph that its first pass replayed.",
            "graph",
        )
        self.requests = histogram(
            REQUESTS, "Requests of a decode batch in which each has k drafts.", BUCKETS, "k"
        )
        super().__init__((self.steps, self.drafts, self.requests))

    def count(self, step: GraphStep, num_tokens: int, engine: str) -> None:
        """Count one step."""
        self.of(self.steps, engine, step.graph.lower(), step.reason).inc()
        if step.draft:
            self.of(self.drafts, engine, step.draft.lower()).inc()
        if step.drafts is not None:
            num_requests = num_tokens / (step.drafts + 1)
            self.of(self.requests, engine, str(step.drafts)).observe(num_requests)


@functools.cache
def _steps() -> GraphSteps:
    return GraphSteps()


def count_step(stat: Any, engine: int = 0) -> None:
    """Count a step of an engine.

    Args:
        stat: vLLM's ``CUDAGraphStat`` of the step; None if nothing is known of it.
        engine: number of the engine; 0 if there is only one.
    """
    step = None if stat is None else GraphStep.parse(stat.runtime_mode)
    if step is not None:
        _steps().count(step, stat.num_unpadded_tokens, str(engine))
