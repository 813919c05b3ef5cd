"""Medians of runs, and ratios of runs that took turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Summary:
    """Median and range of some runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], digits: int = 4) -> Summary:
        """Summarise one or more values."""
        return cls(
            round(statistics.median(values), digits),
            round(min(values), digits),
            round(max(values), digits),
        )

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"

    def as_dict(self) -> dict[str, float]:
        """Return it for a JSON record."""
        return asdict(self)


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Summary:
    """Summarise ours / theirs, pair by pair: the machine's drift cancels within a pair."""
    return Summary.of([a / b for a, b in zip(ours, theirs, strict=True)])
