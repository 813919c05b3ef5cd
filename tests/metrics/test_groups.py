"""What became of drafts, where time went and what is watched: counted from a step's text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY, generate_latest
from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.v1.metrics.loggers import StatLoggerManager
from vllm.v1.metrics.prometheus import unregister_vllm_metrics
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from tests.metrics.apart import apart
from vllm_ascend_spec.control.told import FIXED, Told, Watched
from vllm_ascend_spec.hooks import stats_hook
from vllm_ascend_spec.metrics import acceptance_alarm, step_times, verified
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, from_prometheus
from vllm_ascend_spec.step_text import Times

GROUPS = ((verified, "_verified"), (step_times, "_step_times"), (acceptance_alarm, "_watch"))


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with ExitStack() as stack:
        for module, getter in GROUPS:
            stack.enter_context(apart(module, getter))
        yield


def text() -> str:
    """Return our metrics as a server shows them."""
    return generate_latest(REGISTRY).decode()


def value(name: str, **labels: str) -> float | None:
    """Return the value of one sample; None where there is none."""
    return REGISTRY.get_sample_value(name, labels)


def record(told: Told, times: Times, positions: SpecDecodingStats | None, engine: int = 0) -> None:
    """Hand a step's statistics on, as both engines do."""
    stats_hook.apply()
    manager = StatLoggerManager.__new__(StatLoggerManager)
    manager.stat_loggers = []
    said = CUDAGraphStat(8, 8, 0, told.behind(times.behind("")))
    stats = SimpleNamespace(cudagraph_stats=said, spec_decoding_stats=positions)
    manager.record(engine_idx=engine, scheduler_stats=stats, iteration_stats=None)
    assert stats.cudagraph_stats is None, "vLLM's own table has a line for a step without a graph"


def test_nothing_is_there_before_a_step() -> None:
    assert "vllm:spec_decode_verified" not in text()
    assert "vllm:spec_decode_step_seconds" not in text()
    assert "vllm:spec_decode_acceptance_low" not in text()


def test_drafts_are_counted_by_method_and_number_and_by_position() -> None:
    positions = SpecDecodingStats.new(3)
    for drafts, accepted in ((3, 2), (3, 3), (1, 0)):
        positions.observe_draft(drafts, accepted)
    told = Told(3, FIXED, "eagle", {3: (2, 5), 1: (1, 0)})
    record(told, Times(0, 0, 0), positions)
    record(told, Times(0, 0, 0), positions)
    record(told, Times(0, 0, 0), None, engine=1)
    unregister_vllm_metrics()
    three, one = {"method": "eagle", "k": "3"}, {"method": "eagle", "k": "1"}
    for engine, times in (("0", 2), ("1", 1)):
        assert value(f"{verified.REQUESTS}_total", engine=engine, **three) == 2 * times
        assert value(f"{verified.TOKENS}_total", engine=engine, **three) == 7 * times
        assert value(f"{verified.TOKENS}_total", engine=engine, **one) == 1 * times
    found = {
        place: [
            value(f"{name}_total", engine="0", method="eagle", position=str(place))
            for name in (verified.DRAFTED, verified.ACCEPTED)
        ]
        for place in range(3)
    }
    assert found == {0: [6, 4], 1: [4, 4], 2: [4, 2]}
    assert value(f"{verified.DRAFTED}_total", engine="1", method="eagle", position="0") is None


def test_vllms_counters_are_read_as_they_were_beside_ours() -> None:
    positions = SpecDecodingStats.new(3)
    positions.observe_draft(3, 2)
    record(Told(3, FIXED, "eagle", {3: (1, 2)}), Times(0, 0, 0), positions)
    vllms = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 7.0\n'
    assert from_prometheus(text() + vllms) == AcceptanceCounts(accepted_per_position=(7,))


def test_times_add_up() -> None:
    for times in (Times(2_000_000, 500_000, 250_000), Times(1_000_000, 0, 0)):
        record(Told(3, FIXED), times, None)
    names = (step_times.STEP, step_times.VERIFICATION, step_times.DRAFTING)
    found = [value(f"{name}_total", engine="0") for name in names]
    assert found == pytest.approx([3.0, 0.5, 0.25])


def test_states_are_those_of_the_last_step_and_their_beginnings_are_counted() -> None:
    names = (
        acceptance_alarm.LOW,
        f"{acceptance_alarm.ALARMS}_total",
        acceptance_alarm.PAUSED,
        f"{acceptance_alarm.PAUSES}_total",
    )

    def found() -> list[float | None]:
        return [value(name, engine="0") for name in names]

    record(Told(3, FIXED), Times(0, 0, 0), None)
    assert found() == [0, 0, 0, 0]
    record(Told(0, FIXED, watched=Watched(True, 1, True, 1)), Times(0, 0, 0), None)
    record(Told(0, FIXED, watched=Watched(True, 0, True, 0)), Times(0, 0, 0), None)
    assert found() == [1, 1, 1, 1]
    record(Told(3, FIXED), Times(0, 0, 0), None)
    assert found() == [0, 1, 0, 1]
