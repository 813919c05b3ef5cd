"""Steps by K and reason: counted, and taken out of what vLLM shows."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.v1.metrics.loggers import StatLoggerManager
from vllm.v1.metrics.prometheus import unregister_vllm_metrics
from vllm.v1.metrics.reader import get_metrics_snapshot

from tests.metrics.apart import apart
from vllm_ascend_spec.control.told import METRIC, Told
from vllm_ascend_spec.hooks import stats_hook
from vllm_ascend_spec.metrics import draft_lengths


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    """Count from nothing."""
    with apart(draft_lengths, "_lengths"):
        yield


def counted() -> dict[tuple[str, str, str], float]:
    """Return what ``LLM.get_metrics()`` has of it."""
    found: Any = (m for m in get_metrics_snapshot() if m.name == METRIC)
    return {(m.labels["engine"], m.labels["k"], m.labels["reason"]): m.value for m in found}


@pytest.mark.parametrize("graph", ["", "FULL, K=3", "PIECEWISE"])
def test_steps_are_counted_and_the_rest_is_as_it_was(graph: str) -> None:
    stats_hook.apply()
    manager = StatLoggerManager.__new__(StatLoggerManager)
    manager.stat_loggers = []
    told = Told(3, "fixed").behind(graph)
    for engine in (0, 1, 1):
        stats = SimpleNamespace(cudagraph_stats=CUDAGraphStat(8, 8, 0, told))
        manager.record(engine_idx=engine, scheduler_stats=stats, iteration_stats=None)
        left = stats.cudagraph_stats
        assert left == (CUDAGraphStat(8, 8, 0, graph) if graph else None)
    unregister_vllm_metrics()
    assert counted() == {("0", "3", "fixed"): 1, ("1", "3", "fixed"): 2}
