"""How long a step takes, by requests and drafts: measured, kept up to date, estimated between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Weight of a new measurement, and the most that it has after a long time without any. One that is
# far off, as something else had the machine, counts less.
NEW, NEW_AFTER_LONG, STRANGE = 0.14, 0.5, 0.02
FAR = 2.0
# Measurements of all cells after which those of a cell count e times less.
LONG = 256
# Measurements of a cell before it is believed.
ENOUGH = 2
# Steps before they tell what context costs, and those after which they are forgotten.
MANY, FADE = 32, 1024
# Steps for which the fit of all cells does.
REFIT = 32
# By how many of its standard deviations it has to be more than nothing.
SURE = 3.0


@dataclass
class Cell:
    """Measured steps of one number of requests and one number of drafts.

    Attributes:
        seconds: a step, smoothed.
        context: tokens of a request that it attended to, on average, smoothed likewise.
        count: how many were measured.
        last: number of the last one, of the measurements of all cells.
        recent: how many there were of late, older ones faded.
        was_short: whether the last one was far too short.
    """

    seconds: float
    context: float = 0.0
    last: int = 0
    count: int = 1
    recent: float = 1.0
    was_short: bool = False

    def note(self, seconds: float, context: float, number: int) -> None:
        """Take up another step; ``number`` is that of the measurement."""
        self.count += 1
        self.recent = self.recent * math.exp((self.last - number) / LONG) + 1.0
        self.last = number
        if self.count <= ENOUGH:
            # The first ones may have compiled something; none was too fast.
            self.seconds, self.context = min(self.seconds, seconds), context
            return
        weight = min(max(NEW, 1 / self.recent), NEW_AFTER_LONG)
        if self.is_far(seconds):
            weight = STRANGE
        if self.is_short_again(seconds):
            weight = 1.0
        self.seconds += weight * (seconds - self.seconds)
        self.context += weight * (context - self.context)

    def is_short_again(self, seconds: float) -> bool:
        """Tell whether two steps in a row were far too short: the earlier ones compiled something.

        One alone is what is left of a step behind one that ended late.
        """
        was_short, self.was_short = self.was_short, seconds * FAR <= self.seconds
        return was_short and self.was_short

    def is_far(self, seconds: float) -> bool:
        """Tell whether a step was so long or short that something else has to be the cause."""
        return not 1 / FAR < seconds / self.seconds < FAR


@dataclass
class ContextCost:
    """What a token of context costs a step, by how the times of alike steps go with it.

    Attributes:
        along, across, both: sums of squares of contexts and of seconds, and of their products,
            less those that were usual; old ones fade.
        count: of the steps in them.
    """

    along: float = 0.0
    across: float = 0.0
    both: float = 0.0
    count: int = 0

    def note(self, tokens: float, seconds: float) -> None:
        """Take up by how much a step's context and time were more than usual."""
        self.along += tokens * tokens - self.along / FADE
        self.across += seconds * seconds - self.across / FADE
        self.both += tokens * seconds - self.both / FADE
        self.count += 1

    @property
    def seconds(self) -> float:
        """Seconds for a token; 0 where they might as well be chance."""
        alike = self.along * self.across
        if self.count < MANY or self.both <= 0.0 or alike <= 0.0:
            return 0.0
        explained = self.both * self.both / alike
        steps = min(self.count, FADE)
        is_sure = explained * steps > SURE * SURE * (1.0 - explained)
        return self.both / self.along if is_sure else 0.0


class StepCosts:
    """Times of decode steps.

    A step of n requests with k drafts each verifies n·(k+1) rows and runs the draft k times, so
    its time is taken to be a·n·(k+1) + b·k + c between the cells that were measured. The longer
    the context, the longer a step takes, whatever its drafts: a time that was measured at another
    context than that of the last step is brought to it.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], Cell] = {}
        self._fitted: tuple[float, float, float] | None = None
        self._until_fit = 0
        self._of_context = ContextCost()
        self._context = 0.0
        # Of the last measurement.
        self._number = 0

    def note(self, requests: int, drafts: int, seconds: float, context: float = 0.0) -> None:
        """Take up the time of a step.

        Args:
            requests: n, of the batch.
            drafts: k, of each.
            seconds: from the end of the step before to its own.
            context: tokens that a request attended to, on average.
        """
        if not 0 < seconds < math.inf:
            return
        self._context = context
        self._number += 1
        self._until_fit -= 1
        cell = self._cells.get((requests, drafts))
        if cell is None:
            self._cells[requests, drafts] = Cell(seconds, context, self._number)
            return
        if cell.count >= ENOUGH and not cell.is_far(seconds):
            self._of_context.note(requests * (context - cell.context), seconds - cell.seconds)
        cell.note(seconds, context, self._number)
        if cell.count == ENOUGH:
            self._until_fit = 0

    def _now(self, requests: int, drafts: int) -> float:
        """Return a measured time, brought to the context of the last step."""
        cell = self._cells[requests, drafts]
        longer = requests * (self._context - cell.context)
        return max(0.5 * cell.seconds, cell.seconds + longer * self._of_context.seconds)

    def is_measured(self, drafts: int) -> bool:
        """Tell whether steps with so many drafts were measured often enough, in any batch."""
        return any(k == drafts and cell.count >= ENOUGH for (_, k), cell in self._cells.items())

    def is_known(self, requests: int, drafts: int) -> bool:
        """Tell whether such a step was measured often enough."""
        return self.count(requests, drafts) >= ENOUGH

    def seen_near(self, requests: int, drafts: int) -> tuple[int, int]:
        """Return what is known of steps of less than twice or half the requests.

        Returns:
            how often they were measured, and how many measurements of any steps there were since.
        """
        near = [
            cell
            for (n, k), cell in self._cells.items()
            if k == drafts and max(n, requests) < 2 * min(n, requests)
        ]
        last = max((cell.last for cell in near), default=0)
        return sum(cell.count for cell in near), self._number - last

    def count(self, requests: int, drafts: int) -> int:
        """Return how often such a step was measured."""
        cell = self._cells.get((requests, drafts))
        return 0 if cell is None else cell.count

    def seconds(self, requests: int, drafts: int) -> float | None:
        """Return the time of a step; None where too little is known to say.

        What was measured with as many drafts at another number of requests is scaled by the fit of
        all that was measured. A number of drafts that was never measured is on a line through two
        others.
        """
        if self.is_known(requests, drafts):
            return self._now(requests, drafts)
        others = sorted({k for (_, k), cell in self._cells.items() if cell.count >= ENOUGH})
        if drafts not in others:
            return self._on_a_line(requests, drafts, others)
        alike = [n for (n, k), cell in self._cells.items() if k == drafts and cell.count >= ENOUGH]
        nearest = min(alike, key=lambda n: abs(math.log(n / requests)))
        base = self._now(nearest, drafts)
        fit = self._fit()
        if fit is None:
            # One size of batch alone was seen: between "rows cost nothing" and "rows are all".
            return base * math.sqrt(requests / nearest)
        return base * _at(fit, requests, drafts) / _at(fit, nearest, drafts)

    def _on_a_line(self, requests: int, drafts: int, others: Sequence[int]) -> float | None:
        """Return the time of a step by those with the two numbers of drafts that are nearest."""
        if len(others) < 2:
            return None
        one, two = sorted(others, key=lambda k: abs(k - drafts))[:2]
        first, second = self.seconds(requests, one), self.seconds(requests, two)
        if first is None or second is None:
            return None
        found = first + (second - first) * (drafts - one) / (two - one)
        # Two times that are off by chance may point below zero.
        return max(found, 0.5 * min(first, second))

    def _fit(self) -> tuple[float, float, float] | None:
        """Return a, b and c; None without enough to go by."""
        if self._until_fit <= 0:
            self._fitted, self._until_fit = self._fit_anew(), REFIT
        return self._fitted

    def _fit_anew(self) -> tuple[float, float, float] | None:
        """Return a, b and c by least squares of relative errors."""
        known = [key for key, cell in self._cells.items() if cell.count >= ENOUGH]
        if len({n for n, _ in known}) < 2 or len(known) < 3:
            return None
        import numpy as np

        rows = np.array([_features(n, k) for n, k in known], dtype=float)
        times = np.array([self._now(n, k) for n, k in known])
        found, *_ = np.linalg.lstsq(rows / times[:, None], np.ones(len(known)), rcond=None)
        a, b, c = (max(float(value), 0.0) for value in found)
        return (a, b, c) if a + c > 0 else None

    def row_seconds(self, requests: int) -> float | None:
        """Return at most what a row of the target costs; None without enough to go by.

        The fit takes what a request costs besides its rows for a cost of rows. Steps of equally
        many requests differ in their rows and in their draft steps alone.

        Args:
            requests: n, of the batch.
        """
        fit = self._fit()
        if fit is None:
            return None
        alike: dict[int, list[int]] = {}
        for (n, k), cell in self._cells.items():
            if cell.count >= ENOUGH:
                alike.setdefault(n, []).append(k)
        several = [n for n, found in alike.items() if len(found) > 1]
        if not several:
            return fit[0]
        nearest = min(several, key=lambda n: abs(math.log(n / requests)))
        least, most = min(alike[nearest]), max(alike[nearest])
        longer = self._now(nearest, most) - self._now(nearest, least)
        return min(fit[0], max(0.0, longer) / (nearest * (most - least)))

    def cells(self) -> Mapping[tuple[int, int], Cell]:
        """Return what was measured, by requests and drafts."""
        return dict(self._cells)


def _features(requests: int, drafts: int) -> tuple[float, float, float]:
    return requests * (drafts + 1.0), float(drafts), 1.0


def _at(fit: tuple[float, float, float], requests: int, drafts: int) -> float:
    return sum(f * x for f, x in zip(fit, _features(requests, drafts), strict=True))
