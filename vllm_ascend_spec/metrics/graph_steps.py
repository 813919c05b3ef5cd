"""Counters of steps by graph and by the reason of those without one, and of decode batches.

``vllm:spec_decode_graph_steps{graph=…,reason=…}`` counts steps,
``vllm:spec_decode_draft_graph_steps{graph=…}`` those in which a model drafted, and the histogram
``vllm:spec_decode_batch_requests{k=…}`` the requests of decode batches; ``plan --load`` reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from vllm_ascend_spec.graphs.load_metrics import REQUESTS
from vllm_ascend_spec.graphs.step import DRAFT_METRIC as DRAFTS
from vllm_ascend_spec.graphs.step import METRIC as STEPS
from vllm_ascend_spec.graphs.step import Step

# Each of the sizes that most engines decode at has a bucket.
BUCKETS = (*range(1, 17), *range(20, 65, 4), *range(80, 257, 16), 384, 512, 768, 1024)


class GraphStepsCollector:
    """Brings them to prometheus_client's registry, past vLLM's broom; see ``rule.py``."""

    def __init__(self) -> None:
        from prometheus_client import REGISTRY, Counter, Histogram

        self.steps = Counter(
            STEPS,
            "Steps by the graph that they replayed, and why they had none.",
            labelnames=["engine", "graph", "reason"],
            registry=None,
        )
        self.drafts = Counter(
            DRAFTS,
            "Steps in which a model drafted, by the graph that its first pass replayed.",
            labelnames=["engine", "graph"],
            registry=None,
        )
        self.requests = Histogram(
            REQUESTS,
            "Requests of a decode batch in which each has k drafts.",
            labelnames=["engine", "k"],
            buckets=BUCKETS,
            registry=None,
        )
        self.is_used = False
        REGISTRY.register(self)

    def collect(self) -> Iterable[Any]:
        """Return all; nothing where no engine has graphs."""
        if not self.is_used:
            return []
        return [*self.steps.collect(), *self.drafts.collect(), *self.requests.collect()]

    def count(self, step: Step, num_tokens: int, engine: int) -> None:
        """Count one step."""
        self.is_used = True
        self.steps.labels(str(engine), step.graph.lower(), step.reason).inc()
        if step.draft:
            self.drafts.labels(str(engine), step.draft.lower()).inc()
        if step.drafts is not None:
            self.requests.labels(str(engine), str(step.drafts)).observe(
                num_tokens / (step.drafts + 1)
            )


@functools.cache
def _collector() -> GraphStepsCollector:
    return GraphStepsCollector()


def count_step(stat: Any, engine: int = 0) -> None:
    """Count a step of an engine.

    Args:
        stat: vLLM's ``CUDAGraphStat`` of it, or None for a step of which nothing is known.
        engine: its number, 0 for the only one.
    """
    step = None if stat is None else Step.parse(stat.runtime_mode)
    if step is not None:
        _collector().count(step, stat.num_unpadded_tokens, engine)
