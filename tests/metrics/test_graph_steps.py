"""Steps by graph and decode batches by requests: counted, and read by the plan."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY, generate_latest
from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.v1.metrics.loggers import StatLoggerManager
from vllm.v1.metrics.prometheus import unregister_vllm_metrics
from vllm.v1.metrics.reader import get_metrics_snapshot

from tests.metrics.apart import apart
from vllm_ascend_spec.graphs import distribution_metrics
from vllm_ascend_spec.graphs.k_buckets import buckets_of_drafts
from vllm_ascend_spec.graphs.step import WIDE, GraphStep
from vllm_ascend_spec.hooks import stats_hook
from vllm_ascend_spec.metrics import graph_steps
from vllm_ascend_spec.metrics.graph_steps import DRAFTS, STEPS, count_step
from vllm_ascend_spec.metrics.prometheus import read_samples


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    """Count from nothing."""
    with apart(graph_steps, "_steps"):
        yield


def stat(step: GraphStep, num_tokens: int) -> CUDAGraphStat:
    """Return what a worker says of a step."""
    return CUDAGraphStat(num_tokens, num_tokens, 0, str(step))


def steps() -> dict[tuple[str, str], float]:
    """Return what ``LLM.get_metrics()`` has of steps."""
    found: Any = (m for m in get_metrics_snapshot() if m.name == STEPS)
    return {(m.labels["graph"], m.labels["reason"]): m.value for m in found}


def test_steps_are_counted_by_graph_and_reason() -> None:
    for _ in range(2):
        count_step(stat(GraphStep("FULL", 3), 16))
    count_step(stat(GraphStep("NONE", 3, WIDE), 400), engine=1)
    count_step(None)
    unregister_vllm_metrics()
    assert steps() == {("full", ""): 2, ("none", WIDE): 1}


def test_drafts_are_counted_by_graph() -> None:
    for draft in ("FULL", "NONE", "FULL", ""):
        count_step(stat(GraphStep("FULL", 3, draft=draft), 16))
    found: Any = (m for m in get_metrics_snapshot() if m.name == DRAFTS)
    assert {m.labels["graph"]: m.value for m in found} == {"full": 2, "none": 1}


def test_there_is_nothing_of_an_engine_without_graphs() -> None:
    count_step(None)
    assert STEPS not in generate_latest(REGISTRY).decode()


def test_decode_batches_are_the_load_that_a_plan_reads() -> None:
    for requests in (1, 1, 5, 16):
        count_step(stat(GraphStep("FULL", 3), requests * 4))
    # Its requests are not known.
    count_step(stat(GraphStep("PIECEWISE"), 77))
    samples = list(read_samples(generate_latest(REGISTRY).decode(), "vllm:"))
    load = distribution_metrics.load_of(samples, "here", buckets_of_drafts(16, [3]), 16)
    assert load.by_k is not None
    assert load.by_k[3] == tuple(2 if n == 1 else float(n in (5, 16)) for n in range(1, 17))


def test_both_engines_hand_their_statistics_on() -> None:
    stats_hook.apply()
    manager = StatLoggerManager.__new__(StatLoggerManager)
    manager.stat_loggers = []
    seen = SimpleNamespace(cudagraph_stats=stat(GraphStep("FULL", 3), 16))
    # As vllm/v1/engine/llm_engine.py and vllm/v1/engine/async_llm.py call it.
    manager.record(scheduler_stats=seen, iteration_stats=None, mm_cache_stats=None)
    manager.record(engine_idx=1, scheduler_stats=seen, iteration_stats=None, mm_cache_stats=None)
    manager.record(scheduler_stats=None, iteration_stats=None)
    text = generate_latest(REGISTRY).decode()
    for engine in (0, 1):
        assert f'{STEPS}_total{{engine="{engine}",graph="full",reason=""}} 1.0' in text
