"""Cost of a step: its number of tokens, or a measured step time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from vllm_ascend_spec.errors import ConfigError

# An assumption, not a measurement: eager steps have to cost enough to show in a comparison.
EAGER_FACTOR = 2.0


@dataclass(frozen=True)
class StepCost:
    """The cost of a step, in tokens or in milliseconds.

    Attributes:
        eager_factor: an eager step costs this many times a graph of exactly its tokens.
        times: measured (tokens, milliseconds) of replayed steps; tokens ascend, times never fall.
            If empty, a step costs as much as it has tokens.
    """

    eager_factor: float = EAGER_FACTOR
    times: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.eager_factor < float("inf"):
            raise ConfigError("eager_factor", self.eager_factor, "valid: 1 or more")

    @property
    def unit(self) -> str:
        """Unit of costs."""
        return "ms" if self.times else "tokens"

    def of_graph(self, tokens: int) -> float:
        """Return the cost of replaying a graph of that many tokens.

        The cost is interpolated linearly between two measured sizes. It is constant below the first
        and proportional to the tokens above the last.
        """
        if not self.times:
            return float(tokens)
        place = bisect_left(self.times, (tokens, 0.0))
        if place == 0:
            return self.times[0][1]
        if place == len(self.times):
            size, time = self.times[-1]
            return time * tokens / size
        (low, before), (high, after) = self.times[place - 1 : place + 1]
        return before + (after - before) * (tokens - low) / (high - low)

    def of_eager(self, tokens: int) -> float:
        """Return the cost of an eager step of that many tokens."""
        return self.eager_factor * self.of_graph(tokens)


def measured(times: Sequence[tuple[int, float]], eager_factor: float = EAGER_FACTOR) -> StepCost:
    """Return the cost model of measured step times.

    A larger graph that was measured faster than a smaller one gets the time of the smaller one:
    noise must not make padding pay.

    Args:
        times: (tokens, milliseconds) in any order, each number of tokens once.
        eager_factor: see :class:`StepCost`.

    Raises:
        ConfigError: there are no times, one is invalid, or a number of tokens is given twice.
    """
    rows = sorted(times)
    if not rows:
        raise ConfigError("step_times", list(times), "is empty; valid: rows of tokens and ms")
    for tokens, time in rows:
        if tokens < 1 or not 0 < time < float("inf"):
            raise ConfigError("step_times", (tokens, time), "valid: tokens of 1 or more and ms > 0")
    if len({tokens for tokens, _ in rows}) < len(rows):
        raise ConfigError("step_times", rows, "has a number of tokens twice; give each once")
    rising = accumulate((time for _, time in rows), max)
    return StepCost(
        eager_factor, tuple((tokens, t) for (tokens, _), t in zip(rows, rising, strict=True))
    )
