"""Measure where a step's time goes on the host.

Reading a clock takes a tenth of a microsecond, and each step reads it eight to ten times. Nothing
here waits for an accelerator: with one, a time is how long the host was busy or waited anyway.

Compilation within a step is not counted: vLLM compiles its sampler at the first request that
samples, which takes a CPU many seconds and is not verification.
"""

from __future__ import annotations

import sys
import time


def compile_seconds() -> float:
    """Return the seconds in which ``torch.compile`` has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 1e-9 * dynamo.cumulative_time_spent_ns["entire_frame_compile"] if dynamo else 0.0


class Stopwatch:
    """Adds up the seconds in which it is entered, without compilation; not reentrant."""

    def __init__(self) -> None:
        self._seconds = self._since = self._compiled = 0.0

    def __enter__(self) -> None:
        self._since, self._compiled = time.perf_counter(), compile_seconds()

    def __exit__(self, *_: object) -> None:
        # PyTorch's count is less than before if somebody has reset it.
        compiled = max(0.0, compile_seconds() - self._compiled)
        self._seconds += time.perf_counter() - self._since - compiled

    def take(self) -> int:
        """Return the microseconds added up since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return round(1e6 * seconds)


class StepWatches:
    """A stopwatch for the whole step, and for each of two parts of it."""

    def __init__(self) -> None:
        self.step, self.verification, self.drafting = Stopwatch(), Stopwatch(), Stopwatch()
