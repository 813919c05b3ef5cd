"""Cost model: time of a step by numbers of requests and drafts, measured or interpolated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Weight of a new measurement: the usual one, the most after a long pause, and that of an outlier. A
# time that is off by OUTLIER_RATIO is an outlier, as if something else had used the machine.
WEIGHT, MAX_WEIGHT, OUTLIER_WEIGHT = 0.14, 0.5, 0.02
OUTLIER_RATIO = 2.0
# Measurements of all cells after which a cell's older ones have lost a factor of e in weight.
FADE_MEASUREMENTS = 256
# Measurements that a cell needs before its time is used.
MIN_MEASUREMENTS = 2
# Steps needed to estimate the cost of context, and steps over which older ones fade.
MIN_CONTEXT_STEPS, CONTEXT_FADE = 32, 1024
# Steps from one fit over all cells to the next.
REFIT_INTERVAL = 32
# Standard deviations by which the cost of context has to exceed 0.
SIGNIFICANCE = 3.0


@dataclass
class Bucket:
    """Measured steps of one number of requests and one number of drafts.

    Attributes:
        seconds: smoothed time of a step.
        context: average context tokens per request, smoothed likewise.
        count: number of measurements.
        last: number of the last measurement, counted over all cells.
        recent: number of measurements, with older ones faded.
        was_short: whether the last measurement was far too short.
    """

    seconds: float
    context: float = 0.0
    last: int = 0
    count: int = 1
    recent: float = 1.0
    was_short: bool = False

    def note(self, seconds: float, context: float, number: int) -> None:
        """Add a measurement; ``number`` counts the measurements of all cells."""
        self.count += 1
        self.recent = self.recent * math.exp((self.last - number) / FADE_MEASUREMENTS) + 1.0
        self.last = number
        if self.count <= MIN_MEASUREMENTS:
            # The first steps may include compilation, but none can be too fast.
            self.seconds, self.context = min(self.seconds, seconds), context
            return
        weight = min(max(WEIGHT, 1 / self.recent), MAX_WEIGHT)
        if self.is_far(seconds):
            weight = OUTLIER_WEIGHT
        if self.is_short_again(seconds):
            weight = 1.0
        self.seconds += weight * (seconds - self.seconds)
        self.context += weight * (context - self.context)

    def is_short_again(self, seconds: float) -> bool:
        """Tell whether two steps in a row were far too short: earlier ones included compilation.

        A single short step only means that the step before it ended late.
        """
        was_short, self.was_short = self.was_short, seconds * OUTLIER_RATIO <= self.seconds
        return was_short and self.was_short

    def is_far(self, seconds: float) -> bool:
        """Tell whether a step was so long or so short that it is an outlier."""
        return not 1 / OUTLIER_RATIO < seconds / self.seconds < OUTLIER_RATIO


@dataclass
class ContextCost:
    """Cost of a token of context: a regression slope over steps with equal requests and drafts.

    Attributes:
        along, across, both: sums over steps of squared context, squared seconds and their product,
            each as the deviation from its cell's average; older steps fade.
        count: number of steps in the sums.
    """

    along: float = 0.0
    across: float = 0.0
    both: float = 0.0
    count: int = 0

    def note(self, tokens: float, seconds: float) -> None:
        """Add a step, by how far its context and its time exceed the averages of its cell."""
        self.along += tokens * tokens - self.along / CONTEXT_FADE
        self.across += seconds * seconds - self.across / CONTEXT_FADE
        self.both += tokens * seconds - self.both / CONTEXT_FADE
        self.count += 1

    @property
    def seconds(self) -> float:
        """Seconds per token; 0 while the slope is not significant."""
        alike = self.along * self.across
        if self.count < MIN_CONTEXT_STEPS or self.both <= 0.0 or alike <= 0.0:
            return 0.0
        explained = self.both * self.both / alike
        steps = min(self.count, CONTEXT_FADE)
        is_sure = explained * steps > SIGNIFICANCE * SIGNIFICANCE * (1.0 - explained)
        return self.both / self.along if is_sure else 0.0


class CostModel:
    """Times of decode steps.

    A step of n requests with k drafts each verifies n·(k+1) rows and runs the draft k times, so
    between measured cells its time is modelled as a·n·(k+1) + b·k + c. Trees take fewer passes of
    the draft, and attention of their own; so the model is that of chains, and a tree's time is
    estimated from the same tree's in another batch. A longer context makes any step slower, so
    times that were measured at another context are corrected to that of the last step.

    Args:
        passes: passes of the draft for trees, by number of drafts; all others are chains.
    """

    def __init__(self, passes: Mapping[int, int] | None = None) -> None:
        self._passes = passes or {}
        self._cells: dict[tuple[int, int], Bucket] = {}
        # Numbers of drafts of the cells that were measured often enough, by number of requests.
        self._known: dict[int, list[int]] = {}
        self._fitted: tuple[float, float, float] | None = None
        self._until_fit = 0
        self._of_context = ContextCost()
        self._context = 0.0
        # Number of the last measurement.
        self._number = 0

    def note(self, requests: int, drafts: int, seconds: float, context: float = 0.0) -> None:
        """Record the time of a step.

        Args:
            requests: n, number of requests in the batch.
            drafts: k, number of drafts per request.
            seconds: time from the end of the previous step to the end of this one.
            context: average context tokens per request.
        """
        if not 0 < seconds < math.inf:
            return
        self._context = context
        self._number += 1
        self._until_fit -= 1
        cell = self._cells.get((requests, drafts))
        if cell is None:
            self._cells[requests, drafts] = Bucket(seconds, context, self._number)
            return
        if cell.count >= MIN_MEASUREMENTS and not cell.is_far(seconds):
            self._of_context.note(requests * (context - cell.context), seconds - cell.seconds)
        cell.note(seconds, context, self._number)
        if cell.count == MIN_MEASUREMENTS:
            self._known.setdefault(requests, []).append(drafts)
            self._until_fit = 0

    def _now(self, requests: int, drafts: int) -> float:
        """Return a measured time, corrected to the context of the last step."""
        cell = self._cells[requests, drafts]
        longer = requests * (self._context - cell.context)
        return max(0.5 * cell.seconds, cell.seconds + longer * self._of_context.seconds)

    def is_measured(self, drafts: int) -> bool:
        """Tell whether steps with this number of drafts were measured often enough in any batch."""
        return any(drafts in known for known in self._known.values())

    def is_known(self, requests: int, drafts: int) -> bool:
        """Tell whether such a step was measured often enough."""
        return self.count(requests, drafts) >= MIN_MEASUREMENTS

    def seen_near(self, requests: int, drafts: int) -> tuple[int, int]:
        """Count measurements at batch sizes within a factor of two of ``requests``.

        Returns:
            Their number, and the number of measurements of any step since the last of them.
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
        """Return the measured or estimated time of a step; None if too little was measured.

        If its number of drafts was measured only at other batch sizes, the nearest of these is
        scaled by the fit over all cells. If it was never measured, the time lies on a line through
        those of two other numbers.
        """
        if self.is_known(requests, drafts):
            return self._now(requests, drafts)
        alike = [n for n, known in self._known.items() if drafts in known]
        if not alike:
            others = sorted({k for known in self._known.values() for k in known})
            return self._on_a_line(requests, drafts, others)
        nearest = min(alike, key=lambda n: abs(math.log(n / requests)))
        base = self._now(nearest, drafts)
        fit = self._fit()
        if fit is None:
            # Too little for a fit: take the middle between a constant and a linear cost.
            return base * math.sqrt(requests / nearest)
        return base * self._at(fit, requests, drafts) / self._at(fit, nearest, drafts)

    def _on_a_line(self, requests: int, drafts: int, others: Sequence[int]) -> float | None:
        """Estimate the time of a step on the line through the two nearest numbers of drafts."""
        if drafts not in self._passes:
            # A tree does not say what a chain costs, but where little else was measured.
            chains = [k for k in others if k not in self._passes]
            others = chains if len(chains) > 1 else others
        if len(others) < 2:
            return None
        one, two = sorted(others, key=lambda k: abs(k - drafts))[:2]
        first, second = self.seconds(requests, one), self.seconds(requests, two)
        if first is None or second is None:
            return None
        found = first + (second - first) * (drafts - one) / (two - one)
        # Noise in the two times may lead the line below zero.
        return max(found, 0.5 * min(first, second))

    def _fit(self) -> tuple[float, float, float] | None:
        """Return a, b and c, fitted anew from time to time; None with too few measurements."""
        if self._until_fit <= 0:
            self._fitted, self._until_fit = self._fit_anew(), REFIT_INTERVAL
        return self._fitted

    def _fit_anew(self) -> tuple[float, float, float] | None:
        """Fit a, b and c by least squares of relative errors, to chains."""
        known = [(n, k) for n, ks in self._known.items() for k in ks if k not in self._passes]
        if len({n for n, _ in known}) < 2 or len(known) < 3:
            return None
        import numpy as np

        rows = np.array([self._features(n, k) for n, k in known], dtype=float)
        times = np.array([self._now(n, k) for n, k in known])
        found, *_ = np.linalg.lstsq(rows / times[:, None], np.ones(len(known)), rcond=None)
        a, b, c = (max(float(value), 0.0) for value in found)
        return (a, b, c) if a + c > 0 else None

    def row_seconds(self, requests: int) -> float | None:
        """Return an upper bound on the cost of a target row; None with too few measurements.

        The fit attributes costs per request to the rows. Steps with equally many requests differ
        only in their rows and draft steps, which gives a second bound.

        Args:
            requests: n, number of requests in the batch.
        """
        fit = self._fit()
        if fit is None:
            return None
        several = [n for n, known in self._known.items() if len(known) > 1]
        if not several:
            return fit[0]
        nearest = min(several, key=lambda n: abs(math.log(n / requests)))
        least, most = min(self._known[nearest]), max(self._known[nearest])
        longer = self._now(nearest, most) - self._now(nearest, least)
        return min(fit[0], max(0.0, longer) / (nearest * (most - least)))

    def cells(self) -> Mapping[tuple[int, int], Bucket]:
        """Return the cells by numbers of requests and drafts."""
        return dict(self._cells)

    def _features(self, requests: int, drafts: int) -> tuple[float, float, float]:
        return requests * (drafts + 1.0), float(self._passes.get(drafts, drafts)), 1.0

    def _at(self, fit: tuple[float, float, float], requests: int, drafts: int) -> float:
        return sum(f * x for f, x in zip(fit, self._features(requests, drafts), strict=True))
