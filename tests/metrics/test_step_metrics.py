"""What is reported of a step is counted, and taken out of what vLLM shows."""

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
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from tests.metrics.apart import apart
from vllm_ascend_spec.graphs import distribution_metrics
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts
from vllm_ascend_spec.hooks import stats_hook
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, from_prometheus
from vllm_ascend_spec.metrics.prometheus import read_samples
from vllm_ascend_spec.metrics.step_metrics import (
    DRAFT_GRAPH_STEPS,
    GRAPH_STEPS,
    K_STEPS,
    METRICS,
)
from vllm_ascend_spec.step_report import FIXED, WIDE, StepReport, TreeCounts

# Names on the page, to names of samples.
NAMES = {metric.figure: metric.sample_name for metric in METRICS}


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with apart():
        yield


def text() -> str:
    """Return our metrics as a server shows them."""
    return generate_latest(REGISTRY).decode()


def value(name: str, **labels: str) -> float | None:
    """Return the value of one sample; None where there is none."""
    return REGISTRY.get_sample_value(name, labels)


def record(
    report: StepReport,
    positions: SpecDecodingStats | None = None,
    engine: int = 0,
    num_tokens: int = 8,
) -> CUDAGraphStat | None:
    """Hand a step's statistics on, as both engines do; return what is left for vLLM's table."""
    stats_hook.apply()
    manager = StatLoggerManager.__new__(StatLoggerManager)
    manager.stat_loggers = []
    stat = CUDAGraphStat(num_tokens, num_tokens, 0, report.encode())
    stats = SimpleNamespace(cudagraph_stats=stat, spec_decoding_stats=positions)
    manager.record(engine_idx=engine, scheduler_stats=stats, iteration_stats=None)
    return stats.cudagraph_stats


def snapshot(name: str, *labels: str) -> dict[Any, float]:
    """Return what ``LLM.get_metrics()`` has of a counter, by labels."""
    found: Any = (metric for metric in get_metrics_snapshot() if metric.name == name)
    return {tuple(metric.labels[label] for label in labels): metric.value for metric in found}


def test_nothing_is_there_before_a_step() -> None:
    assert "vllm:spec_decode_verified" not in text()
    assert "vllm:spec_decode_step_seconds" not in text()
    assert "vllm:spec_decode_acceptance_low" not in text()


@pytest.mark.parametrize("graph", ["", "FULL", "PIECEWISE", "NONE"])
def test_steps_are_counted_by_k_and_vllm_gets_its_own_text(graph: str) -> None:
    for engine in (0, 1, 1):
        left = record(StepReport(graph=graph, k=3, k_reason=FIXED), engine=engine)
        # A line for a step without a graph mode would be one too many in vLLM's table.
        assert left == (CUDAGraphStat(8, 8, 0, graph) if graph else None)
    unregister_vllm_metrics()
    found = snapshot(K_STEPS, "engine", "k", "reason")
    assert found == {("0", "3", FIXED): 1, ("1", "3", FIXED): 2}


def test_steps_are_counted_by_graph_and_reason() -> None:
    for _ in range(2):
        record(StepReport(graph="FULL", batch_k=3))
    record(StepReport(graph="NONE", batch_k=3, no_graph_reason=WIDE), engine=1)
    # Of vLLM's own text no more than the graph is known.
    stat = CUDAGraphStat(7, 7, 0, "PIECEWISE")
    assert stats_hook.count(stat, 0) == stat
    found = snapshot(GRAPH_STEPS, "graph", "reason")
    assert found == {("full", ""): 2, ("none", WIDE): 1, ("piecewise", ""): 1}
    assert snapshot(K_STEPS, "k") == {}


def test_drafts_are_counted_by_graph() -> None:
    for draft in ("FULL", "NONE", "FULL", ""):
        record(StepReport(graph="FULL", batch_k=3, draft_graph=draft))
    assert snapshot(DRAFT_GRAPH_STEPS, "graph") == {("full",): 2, ("none",): 1}


def test_there_is_nothing_of_graphs_of_an_engine_without_them() -> None:
    record(StepReport(k=3, k_reason=FIXED))
    assert GRAPH_STEPS not in text()


def test_decode_batches_are_the_load_that_a_plan_reads() -> None:
    for requests in (1, 1, 5, 16):
        record(StepReport(graph="FULL", batch_k=3), num_tokens=requests * 4)
    # Its requests are not known.
    record(StepReport(graph="PIECEWISE"), num_tokens=77)
    samples = list(read_samples(text(), "vllm:"))
    load = distribution_metrics.load_of(samples, "here", tiers_of_drafts(16, [3]), 16)
    assert load.by_k is not None
    assert load.by_k[3] == tuple(2 if n == 1 else float(n in (5, 16)) for n in range(1, 17))


def test_statistics_without_a_step_are_passed_on() -> None:
    stats_hook.apply()
    manager = StatLoggerManager.__new__(StatLoggerManager)
    manager.stat_loggers = []
    # As vllm/v1/engine/llm_engine.py and vllm/v1/engine/async_llm.py call it.
    manager.record(scheduler_stats=None, iteration_stats=None)
    nothing = SimpleNamespace(cudagraph_stats=None)
    manager.record(engine_idx=1, scheduler_stats=nothing, iteration_stats=None, mm_cache_stats=None)
    assert "vllm:spec_decode_step_seconds" not in text()


def test_drafts_are_counted_by_method_and_number_and_by_position() -> None:
    positions = SpecDecodingStats.new(3)
    for drafts, accepted in ((3, 2), (3, 3), (1, 0)):
        positions.observe_draft(drafts, accepted)
    report = StepReport(k=3, k_reason=FIXED, method="eagle", verified={3: (2, 5), 1: (1, 0)})
    record(report, positions)
    record(report, positions)
    record(report, engine=1)
    unregister_vllm_metrics()
    three, one = {"method": "eagle", "k": "3"}, {"method": "eagle", "k": "1"}
    for engine, times in (("0", 2), ("1", 1)):
        assert value(NAMES["verified_requests"], engine=engine, **three) == 2 * times
        assert value(NAMES["verified_tokens"], engine=engine, **three) == 7 * times
        assert value(NAMES["verified_tokens"], engine=engine, **one) == 1 * times
    found = {
        place: [
            value(NAMES[name], engine="0", method="eagle", position=str(place))
            for name in ("position_drafts", "position_accepted")
        ]
        for place in range(3)
    }
    assert found == {0: [6, 4], 1: [4, 4], 2: [4, 2]}
    assert value(NAMES["position_drafts"], engine="1", method="eagle", position="0") is None


def test_trees_are_counted_by_where_their_paths_went() -> None:
    trees = TreeCounts(verified=5, drafts=75, accepted=12, known=4, left=1)
    report = StepReport(k=15, k_reason=FIXED, method="eagle3", trees=trees, tree_depth=25)
    record(report)
    record(report)
    record(StepReport(k=3, k_reason=FIXED, method="eagle3"))
    paths = snapshot(NAMES["tree_paths"].removesuffix("_total"), "method", "path")
    assert paths == {("eagle3", "chain"): 6, ("eagle3", "beside"): 2, ("eagle3", "unknown"): 2}
    sums = [
        value(NAMES[name], engine="0", method="eagle3")
        for name in ("tree_drafts", "tree_depth", "tree_accepted")
    ]
    assert sums == [150, 50, 24]


def test_there_is_nothing_of_trees_of_an_engine_with_chains() -> None:
    record(StepReport(k=3, k_reason=FIXED, method="eagle", verified={3: (1, 2)}))
    assert "spec_decode_tree" not in text()


def test_vllms_counters_are_read_as_they_were_beside_ours() -> None:
    positions = SpecDecodingStats.new(3)
    positions.observe_draft(3, 2)
    record(StepReport(k=3, k_reason=FIXED, method="eagle", verified={3: (1, 2)}), positions)
    vllms = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 7.0\n'
    assert from_prometheus(text() + vllms) == AcceptanceCounts(accepted_per_position=(7,))


def test_times_add_up() -> None:
    for times in ((2_000_000, 500_000, 250_000), (1_000_000, 0, 0)):
        step, verification, drafting = times
        record(StepReport(step_us=step, verification_us=verification, drafting_us=drafting))
    names = ("step_seconds", "verification_seconds", "drafting_seconds")
    found = [value(NAMES[name], engine="0") for name in names]
    assert found == pytest.approx([3.0, 0.5, 0.25])


def test_states_are_those_of_the_last_step_and_their_beginnings_are_counted() -> None:
    def found() -> list[float | None]:
        names = ("low", "alarms", "paused", "pauses")
        return [value(NAMES[name], engine="0") for name in names]

    record(StepReport(step_us=5))
    assert found() == [None] * 4, "no scheduler of ours reports"
    record(StepReport(k=3))
    assert found() == [0, 0, 0, 0]
    record(StepReport(k=0, is_low=True, alarms=1, is_paused=True, pauses=1))
    record(StepReport(k=0, is_low=True, is_paused=True))
    assert found() == [1, 1, 1, 1]
    record(StepReport(k=3))
    assert found() == [0, 1, 0, 1]
