"""Time calls in turn, on a CPU's clock or with CUDA events."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

# A sample lasts at least this long, by repeating short calls.
MIN_SAMPLE_S = 0.02
MAX_REPEATS = 2000
# A longer call streams far more than a cache holds, so there is nothing to warm.
WARMED_BELOW_S = 0.2
# More than the L2 cache of any GPU; written before every timed call.
FLUSH_BYTES = 256 * 2**20

Call = Callable[[], Any]


class Timer(Protocol):
    """Measures the mean time of a call."""

    def seconds(self, call: Call, repeats: int) -> float:
        """Return the mean seconds of ``repeats`` calls."""


class CpuTimer:
    """Calls back to back on the clock of the process."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock

    def seconds(self, call: Call, repeats: int) -> float:
        """Return the mean seconds of ``repeats`` calls."""
        started = self.clock()
        for _ in range(repeats):
            call()
        return (self.clock() - started) / repeats


class CudaTimer:
    """CUDA events around each call, after a write that leaves nothing of the inputs in L2.

    The write also gives the host time to queue the call, so that what is measured is the GPU's
    time unless launching takes longer than the write.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)

    def seconds(self, call: Call, repeats: int) -> float:
        """Return the mean seconds of ``repeats`` calls."""
        spans = []
        for _ in range(repeats):
            self.flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            spans.append((start, end))
        torch.cuda.synchronize(self.device)
        return sum(start.elapsed_time(end) for start, end in spans) / (1e3 * repeats)


def make_timer(device: torch.device) -> Timer:
    """Return the timer for ``device``."""
    return CudaTimer(device) if device.type == "cuda" else CpuTimer()


@dataclass
class Samples:
    """What was measured of one case.

    Attributes:
        seconds: by peer, one mean time a call for each round.
        skipped: by peer, why it was not measured.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def measure(
    calls: Mapping[str, Call], timer: Timer, *, rounds: int, limit_s: float, seed: int = 0
) -> Samples:
    """Time ``calls`` in turn, ``rounds`` times, each round in another order.

    Every call has run twice before (compilation, first touch of memory). Before a sample, the call
    runs once untimed, so each starts from the caches that it leaves behind itself. A call whose
    rounds would take longer than ``limit_s`` is skipped, and said to be.
    """
    samples, repeats, warmed = Samples(), {}, {}
    for name, call in calls.items():
        call()
        once = timer.seconds(call, 1)
        repeats[name] = min(max(math.ceil(MIN_SAMPLE_S / max(once, 1e-9)), 1), MAX_REPEATS)
        warmed[name] = once < WARMED_BELOW_S
        predicted = rounds * once * (repeats[name] + warmed[name])
        if predicted > limit_s:
            samples.skipped[name] = f"would take {predicted:.0f} s, the limit is {limit_s:g} s"
        else:
            samples.seconds[name] = []
    order = list(samples.seconds)
    shuffle = random.Random(seed).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            if warmed[name]:
                calls[name]()
            samples.seconds[name].append(timer.seconds(calls[name], repeats[name]))
    return samples
