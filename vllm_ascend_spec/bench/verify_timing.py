"""Time calls in turn, on a CPU's clock or with CUDA events."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

# A sample lasts at least this long, by repeating short calls.
MIN_SAMPLE_S = 0.02
# A longer call streams far more than a cache holds, so there is nothing to warm.
WARMED_BELOW_S = 0.2
# More than the L2 cache of any GPU; and than the last-level cache that one core reaches.
CUDA_FLUSH_BYTES = 256 * 2**20
CPU_FLUSH_BYTES = 128 * 2**20

Call = Callable[[], Any]


class Timer(Protocol):
    """Measures the time of a call.

    Attributes:
        max_repeats: most calls of a sample.
    """

    max_repeats: int

    def seconds(self, call: Call, repeats: int) -> float:
        """Return the median seconds of ``repeats`` calls."""


class CpuTimer:
    """Calls back to back, each on the host's clock.

    The median of short calls leaves out those that the scheduler interrupted. With ``cold``, a
    pass over other memory comes before every call; a read, as large writes go past the caches.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, *, cold: bool = False
    ) -> None:
        self.clock = clock
        self.flush = torch.zeros(CPU_FLUSH_BYTES // 4) if cold else None
        self.max_repeats = 20 if cold else 2000

    def seconds(self, call: Call, repeats: int) -> float:
        """Return the median seconds of ``repeats`` calls."""
        spans = []
        for _ in range(repeats):
            if self.flush is not None:
                self.flush.sum()
            started = self.clock()
            call()
            spans.append(self.clock() - started)
        return statistics.median(spans)


class CudaTimer:
    """CUDA events around each call, after a write that leaves nothing of the inputs in L2.

    The write also gives the host time to queue the call, so that what is measured is the GPU's
    time unless launching takes longer than the write.
    """

    max_repeats = 200

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.flush = torch.empty(CUDA_FLUSH_BYTES, dtype=torch.int8, device=device)

    def seconds(self, call: Call, repeats: int) -> float:
        """Return the median seconds of ``repeats`` calls."""
        spans = []
        for _ in range(repeats):
            self.flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            spans.append((start, end))
        torch.cuda.synchronize(self.device)
        return statistics.median(start.elapsed_time(end) for start, end in spans) / 1e3


def make_timer(device: torch.device, *, cold: bool = False) -> Timer:
    """Return the timer for ``device``; that of CUDA is always cold."""
    return CudaTimer(device) if device.type == "cuda" else CpuTimer(cold=cold)


@dataclass
class Samples:
    """What was measured of one case.

    Attributes:
        seconds: by peer, the time of a call in each round.
        skipped: by peer, why it was not measured.
        cpu_share: processor time / wall time of the rounds; below the number of busy threads,
            others took the processor.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    cpu_share: float = 1.0


def measure(
    calls: Mapping[str, Call], timer: Timer, *, rounds: int, limit_s: float, seed: int = 0
) -> Samples:
    """Time ``calls`` in turn, ``rounds`` times, each round in another order.

    Every call has run twice before (compilation, first touch of memory). Before a sample, the call
    runs once untimed, so each starts from what it leaves behind itself. A call whose
    rounds would take longer than ``limit_s`` is skipped, and said to be.
    """
    samples, repeats, warmed = Samples(), {}, {}
    for name, call in calls.items():
        call()
        once = timer.seconds(call, 1)
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
                calls[name]()
            samples.seconds[name].append(timer.seconds(calls[name], repeats[name]))
    samples.cpu_share = (time.process_time() - worked) / max(time.perf_counter() - started, 1e-9)
    return samples
