"""Which steps tell how long a step takes."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_ascend_spec.control.costs import StepCosts

# Steps with a K before they are timed: the first verifies the drafts of another K, and the next
# finds the caches as that one left them.
SETTLE = 2


@dataclass(frozen=True)
class Step:
    """A step of the engine.

    Attributes:
        requests: of the batch.
        drafts: K, how many drafts it made for each.
        has_prompts: whether it read prompts, too, which says nothing of decoding.
        left_out: rows that it would have had if no request were limited.
        context: tokens that a request attended to, on average.
    """

    requests: int
    drafts: int
    has_prompts: bool
    left_out: int = 0
    context: float = 0.0


class StepClock:
    """Times steps from the end of one to the end of the next.

    With steps scheduled ahead the two overlap, so a step has no beginning of its own. It verifies
    what the one before it drafted: only where both have the same K is its time that of one K. The
    first such step takes longer than those after it, by a few percent, and is not timed either. A
    step without prompts goes on with requests of the one before, so nobody was waited for.

    Args:
        costs: where the times go.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._drafts: int | None = None
        self._alike = 0
        self._ended = 0.0

    def ended(self, step: Step, now: float) -> None:
        """Take up the end of a step.

        Args:
            step: what it was.
            now: seconds of a clock that never goes back.
        """
        self._alike = self._alike + 1 if step.drafts == self._drafts else 0
        if not step.has_prompts and self._alike >= SETTLE:
            row = self._costs.row_seconds(step.requests) if step.left_out else None
            left_out = step.left_out * (row or 0.0)
            seconds = now - self._ended + left_out
            self._costs.note(step.requests, step.drafts, seconds, step.context)
        self._drafts, self._ended = step.drafts, now

    def restart(self) -> None:
        """Time nothing until steps have settled again: those in between were not told."""
        self._drafts = None
