"""How far a phase is, how fast it goes and how long it will take, as one line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Progress:
    """Counts what a phase has done.

    Attributes:
        phase: its name.
        total: number of prompts of the whole phase.
        done: prompts done, those of earlier starts too.
        clock: returns seconds.
    """

    phase: str
    total: int
    done: int = 0
    clock: Callable[[], float] = time.monotonic
    _earlier: int = field(init=False)
    _begin: float = field(init=False)
    _tokens: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._earlier, self._begin = self.done, self.clock()

    def add(self, prompts: int, tokens: int) -> str:
        """Count prompts and tokens of this start, and return the line to show."""
        self.done += prompts
        self._tokens += tokens
        seconds = max(self.clock() - self._begin, 1e-9)
        here = self.done - self._earlier
        left = duration(seconds / here * (self.total - self.done)) if here else "unknown time"
        return (
            f"{self.phase}: {self.done:,} of {self.total:,} prompts, {self._tokens / seconds:,.0f} "
            f"tokens/s, {left} left"
        )


def duration(seconds: float) -> str:
    """Return a time as ``45 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
