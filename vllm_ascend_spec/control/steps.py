"""Which steps tell how long a step takes."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_ascend_spec.control.costs import StepCosts


@dataclass(frozen=True)
class DecodeStep:
    """A step without prompts.

    Attributes:
        requests: of the batch.
        drafts: K, how many drafts it made for each.
    """

    requests: int
    drafts: int


class StepClock:
    """Times steps from the end of one to the end of the next.

    With steps scheduled ahead the two overlap, so a step has no beginning of its own. A step
    verifies what the one before it drafted: only where both have the same requests and K is its
    time that of one K, and only where the one before was a decode step was nobody waited for.

    Args:
        costs: where the times go.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._before: DecodeStep | None = None
        self._ended = 0.0

    def ended(self, step: DecodeStep | None, now: float) -> None:
        """Take up the end of a step.

        Args:
            step: what it was, None for one with prompts.
            now: seconds of a clock that never goes back.
        """
        if step is not None and step == self._before:
            self._costs.note(step.requests, step.drafts, now - self._ended)
        self._before, self._ended = step, now
