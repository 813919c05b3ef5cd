"""How ``benchmarks verify`` takes time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from tests.benchmarks.verify import memory, overhead, timing
from tests.benchmarks.verify.cases import VerifyCase, make_batch
from tests.benchmarks.verify.peers import our_call
from vllm_ascend_spec.bench.stats import paired_ratio

CPU = torch.device("cpu")


class Clock:
    """Time passes when a call says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def call(self, name: str, cost: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.log.append(name)
            self.now += cost()

        return run


def samples_of(costs: dict[str, Callable[[], float]], clock: Clock, **how: float):
    calls = {name: [clock.call(name, cost)] for name, cost in costs.items()}
    settings = {"rounds": 4, "limit_s": 1e9, **how}
    return timing.measure(calls, timing.CpuTimer(clock), **settings)


def test_times_are_of_one_call() -> None:
    samples = samples_of({"a": lambda: 0.001, "b": lambda: 0.5}, Clock())
    assert samples.seconds["a"] == pytest.approx([0.001] * 4)
    assert samples.seconds["b"] == pytest.approx([0.5] * 4)
    assert not samples.skipped


def test_short_calls_are_repeated_and_long_ones_are_not() -> None:
    clock = Clock()
    samples_of({"short": lambda: 0.001, "long": lambda: 0.5}, clock)
    # Two before, then in each round one untimed and 20 timed; a long one is timed at once.
    assert clock.log.count("short") == 2 + 4 * (1 + 20)
    assert clock.log.count("long") == 2 + 4


def test_ratios_are_formed_within_a_round() -> None:
    """The machine slows down tenfold after two rounds: the ratio does not change."""
    clock = Clock()

    def slowness() -> float:
        # Two calls before the rounds and one in each, of both.
        return 10.0 if (len(clock.log) - 5) // 2 >= 2 else 1.0

    samples = samples_of({"a": lambda: 1.0 * slowness(), "b": lambda: 0.5 * slowness()}, clock)
    assert samples.seconds["a"] == pytest.approx([1.0, 1.0, 10.0, 10.0])
    ratio = paired_ratio(samples.seconds["a"], samples.seconds["b"])
    assert (ratio.low, ratio.high) == (2.0, 2.0)


def test_an_interrupted_call_does_not_count() -> None:
    clock = Clock()
    costs = iter([0.001, 0.001, 0.9, 0.001, 0.001])
    timer = timing.CpuTimer(clock)
    assert timer.seconds([clock.call("a", lambda: next(costs))], 5) == pytest.approx(0.001)


def test_a_process_that_sleeps_has_little_of_the_processor() -> None:
    idle = timing.measure(
        {"idle": [lambda: time.sleep(0.05)]}, timing.CpuTimer(), rounds=2, limit_s=9
    )
    assert idle.cpu_share < 0.5


def test_calls_take_turns_in_changing_order() -> None:
    clock = Clock()
    samples_of({name: lambda: 0.5 for name in "abc"}, clock, rounds=8)
    timed = clock.log[6:]
    rounds = ["".join(timed[i : i + 3]) for i in range(0, len(timed), 3)]
    assert {"".join(sorted(order)) for order in rounds} == {"abc"}
    assert len(set(rounds)) > 2


def test_a_call_that_would_take_too_long_is_skipped_and_said_to_be() -> None:
    clock = Clock()
    samples = samples_of({"slow": lambda: 5.0, "fast": lambda: 0.5}, clock, limit_s=10)
    assert samples.skipped == {"slow": "would take 20 s, the limit is 10 s"}
    assert set(samples.seconds) == {"fast"}
    assert clock.log.count("slow") == 2


def test_cuda_flushes_before_every_call_and_waits_once(monkeypatch) -> None:
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("event")

        def elapsed_time(self, end: Event) -> float:
            return 3.0  # milliseconds

    monkeypatch.setattr(timing, "CUDA_FLUSH_BYTES", 8)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("wait"))
    timer = timing.CudaTimer(CPU)
    timer.flush.fill_(1)

    def call() -> None:
        assert not timer.flush.any()
        timer.flush.fill_(1)
        log.append("call")

    assert timer.seconds([call], 2) == pytest.approx(0.003)
    assert log == ["event", "call", "event"] * 2 + ["wait"]
    log.clear()
    assert timer.seconds([call, call], 1) == pytest.approx(0.003)
    assert log == ["event", "call", "event"] * 2 + ["wait"]


def test_the_timer_of_a_cpu_is_its_clock() -> None:
    assert isinstance(timing.make_timer(CPU), timing.CpuTimer)


def test_batches_take_turns_and_their_medians_are_averaged() -> None:
    clock = Clock()
    small = iter([0.001, 0.9, 0.001])
    calls = [clock.call("small", lambda: next(small)), clock.call("large", lambda: 0.003)]
    assert timing.CpuTimer(clock).seconds(calls, 3) == pytest.approx(0.002)
    assert clock.log == ["small", "large"] * 3


def test_samples_go_through_all_batches() -> None:
    clock = Clock()
    calls = {"a": [clock.call(f"a{index}", lambda: 0.004) for index in range(5)]}
    samples = timing.measure(calls, timing.CpuTimer(clock), rounds=2, limit_s=9)
    assert samples.seconds["a"] == pytest.approx([0.004] * 2)
    # Each twice before; a pass takes 20 ms, and one untimed pass comes before it.
    assert clock.log == [f"a{index}" for index in range(5)] * (2 + 2 * 2)


def test_memory_is_what_lies_beside_inputs_and_outputs() -> None:
    x = torch.zeros(1000)

    def call() -> torch.Tensor:
        one = x + 1  # 4000 bytes
        two = one.double()  # 8000 bytes more
        del one
        return two.float()  # 4000 bytes, handed out

    # Conversion happens beside `two` only.
    assert memory.peak_bytes(call, CPU) == 8000
    assert memory.peak_bytes(x.sum, CPU) < 100
    assert memory.peak_bytes(lambda: (x + 1, x + 2), CPU) < 100


def test_peak_of_a_trace_in_order_of_time() -> None:
    sizes = [(3, -5), (1, 5), (2, 7), (4, 1)]
    events = [{"ts": ts, "args": {"Bytes": size}} for ts, size in sizes]
    assert memory.running_peak(events) == 12


def test_peak_on_cuda(monkeypatch) -> None:
    allocator = {"held": 100, "peak": 100}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocator["held"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: allocator["peak"])

    def call() -> torch.Tensor:
        allocator["peak"] = 700
        return torch.zeros(50)

    assert memory.peak_bytes(call, torch.device("cuda")) == 700 - 100 - 200


def test_memory_as_large_as_the_probabilities_is_flagged() -> None:
    assert memory.memory_record(4 * 100, 4, 100, "vllm")["vocab_sized"]
    record = memory.memory_record(399, 4, 100, "cpu")
    assert not record["vocab_sized"]
    assert record["outside_pytorch_bytes_per_thread_at_most"] == 65536
    record = memory.memory_record(399, 4, 500_000, "cpu")
    assert record["outside_pytorch_bytes_per_thread_at_most"] == 3 * 65536


@pytest.mark.parametrize("kind", overhead.OVERHEAD_KINDS)
def test_checks_alone_check_and_do_nothing_else(kind: str) -> None:
    batch = make_batch(VerifyCase(kind, 32, 2), torch.float32, CPU)
    call = our_call(kind, batch, "reference")
    wrong = our_call(kind, batch._replace(draft_token_ids=batch.draft_token_ids + 99), "reference")
    with overhead.checks_alone(kind):
        assert call() is None
        with pytest.raises(ValueError, match="draft_token_ids"):
            wrong()
    assert call()[0].shape == (2, 5)


def test_the_op_is_whole_again_after_an_error() -> None:
    batch = make_batch(VerifyCase("greedy", 32, 2), torch.float32, CPU)
    with pytest.raises(RuntimeError), overhead.checks_alone("greedy"):
        raise RuntimeError
    assert our_call("greedy", batch, "reference")() is not None


def test_overhead_has_all_three_parts(monkeypatch) -> None:
    monkeypatch.setattr(overhead, "REPEATS", 2)
    case = VerifyCase("top-k-top-p", 64, 1)
    found = overhead.measure_overhead(
        case, "reference", torch.float32, CPU, rounds=2, timer=timing.CpuTimer()
    )
    assert set(found["microseconds"]) == {"checks", "uniforms", "whole"}
    assert found["checks_share"]["median"] > 0
    assert (found["kind"], found["backend"]) == ("top-k-top-p", "reference")
