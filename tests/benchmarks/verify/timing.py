"""Time calls in turn, with the host's clock or with CUDA events."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

# A sample lasts at least this long, by repeating short calls.
MIN_SAMPLE_S = 0.02
# A longer call streams far more than a cache holds, so there is nothing to warm.
WARMED_BELOW_S = 0.2
# More than the L2 cache of any GPU.
CUDA_FLUSH_BYTES = 256 * 2**20

Call = Callable[[], Any]
# The same call on several batches, which take turns.
Calls = Sequence[Call]


class Timer(Protocol):
    """Measures the time of a call.

    Attributes:
        max_repeats: most passes over the calls in one sample.
    """

    max_repeats: int

    def seconds(self, calls: Calls, repeats: int) -> float:
        """Return the seconds of a call: the mean over ``calls`` of each one's median.

        Args:
            calls: calls to make in turn.
            repeats: number of passes over ``calls``.
        """


class CpuTimer:
    """Makes calls back to back, each timed with the host's clock.

    The median ignores the short calls that the scheduler interrupted.
    """

    max_repeats = 2000

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock

    def seconds(self, calls: Calls, repeats: int) -> float:
        """Return the seconds of a call; see ``Timer``."""
        spans: list[list[float]] = [[] for _ in calls]
        for _ in range(repeats):
            for call, own in zip(calls, spans, strict=True):
                started = self.clock()
                call()
                own.append(self.clock() - started)
        return statistics.fmean(map(statistics.median, spans))


class CudaTimer:
    """Times each call with CUDA events, after a write that evicts the inputs from L2.

    The write also gives the host time to queue the call, so that the GPU's time is measured unless
    launching takes longer than the write.
    """

    max_repeats = 200

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.flush = torch.empty(CUDA_FLUSH_BYTES, dtype=torch.int8, device=device)

    def seconds(self, calls: Calls, repeats: int) -> float:
        """Return the seconds of a call; see ``Timer``."""
        spans: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in calls]
        for _ in range(repeats):
            for call, own in zip(calls, spans, strict=True):
                self.flush.zero_()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                end.record()
                own.append((start, end))
        torch.cuda.synchronize(self.device)
        medians = (statistics.median(a.elapsed_time(b) for a, b in own) for own in spans)
        return statistics.fmean(medians) / 1e3


def make_timer(device: torch.device) -> Timer:
    """Return the timer for ``device``."""
    return CudaTimer(device) if device.type == "cuda" else CpuTimer()


@dataclass
class Samples:
    """The measurements of one case.

    Attributes:
        seconds: by peer, the time of a call in each round.
        skipped: by peer, why it was not measured.
        cpu_share: CPU time / wall time of the rounds; if less than the number of busy threads,
            other processes took the CPU.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    cpu_share: float = 1.0


def measure(
    calls: Mapping[str, Calls], timer: Timer, *, rounds: int, limit_s: float, seed: int = 0
) -> Samples:
    """Time ``calls`` in turn, ``rounds`` times, each round in another order.

    Every call runs twice beforehand (compilation, first touch of memory). Before a sample of short
    calls, they run once untimed, so that each sample starts from the caches that its own calls
    leave. A name whose rounds would take longer than ``limit_s`` is reported as skipped.
    """
    samples, repeats, warmed = Samples(), {}, {}
    for name, own in calls.items():
        _run(own)
        once = timer.seconds(own, 1) * len(own)
        wanted = math.ceil(MIN_SAMPLE_S / max(once, 1e-9))
        repeats[name] = min(max(wanted, 1), timer.max_repeats)
        warmed[name] = once < WARMED_BELOW_S
        predicted = rounds * once * (repeats[name] + warmed[name])
        if predicted > limit_s:
            samples.skipped[name] = f"would take {predicted:.0f} s, the limit is {limit_s:g} s"
        else:
            samples.seconds[name] = []
    started, worked = time.perf_counter(), time.process_time()
    order = list(samples.seconds)
    shuffle = random.Random(seed).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            if warmed[name]:
                _run(calls[name])
            samples.seconds[name].append(timer.seconds(calls[name], repeats[name]))
    samples.cpu_share = (time.process_time() - worked) / max(time.perf_counter() - started, 1e-9)
    return samples


def _run(calls: Calls) -> None:
    for call in calls:
        call()
