"""Time those steps that show how long a step takes."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_ascend_spec.control.cost_model import CostModel

# Steps with a new K before one is timed: the first verifies drafts of another K, and the second
# finds the caches as that one left them.
WARMUP_STEPS = 2


@dataclass(frozen=True)
class TimedStep:
    """A step of the engine.

    Attributes:
        requests: number of requests in the batch.
        k: number of drafts that it made for each.
        has_prompts: whether it included prefill, so that its time says nothing about decoding.
        left_out: further rows that it would have had if no request were limited.
        context: average context tokens per request.
    """

    requests: int
    k: int
    has_prompts: bool
    left_out: int = 0
    context: float = 0.0


class StepTimer:
    """Times steps from the end of one to the end of the next.

    With async scheduling the two overlap, so a step has no start of its own. It verifies what the
    previous step drafted, so its time belongs to a single K only if both have the same K. The first
    such step takes a few percent longer than those after it and is not timed either. A step without
    prefill continues requests of the previous one, so no time was spent waiting for requests.

    Args:
        costs: receives the times.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._k: int | None = None
        self._alike = 0
        self._ended = 0.0

    def ended(self, step: TimedStep, now: float) -> None:
        """Record the end of a step.

        Args:
            step: the step that ended.
            now: seconds of a monotonic clock.
        """
        self._alike = self._alike + 1 if step.k == self._k else 0
        if not step.has_prompts and self._alike >= WARMUP_STEPS:
            row = self._costs.row_seconds(step.requests) if step.left_out else None
            left_out = step.left_out * (row or 0.0)
            seconds = now - self._ended + left_out
            self._costs.note(step.requests, step.k, seconds, step.context)
        self._k, self._ended = step.k, now

    def restart(self) -> None:
        """Time nothing until steps have settled again: some were not recorded here."""
        self._k = None
