"""What is watched over: drafts that are hardly accepted, and drafting that pauses."""

from __future__ import annotations

import functools

from vllm_ascend_spec.control.told import Watched
from vllm_ascend_spec.metrics.group import Group, counter, gauge

LOW = "vllm:spec_decode_acceptance_low"
ALARMS = "vllm:spec_decode_acceptance_alarms"
PAUSED = "vllm:spec_decode_drafting_paused"
PAUSES = "vllm:spec_decode_drafting_pauses"


class Watch(Group):
    """Two states, and how often each began."""

    def __init__(self) -> None:
        self.low = gauge(LOW, "Whether the watchdog finds that drafts are hardly accepted.")
        self.alarms = counter(ALARMS, "How often it came to find so.")
        self.paused = gauge(PAUSED, "Whether no drafts are made, because they do not pay.")
        self.pauses = counter(PAUSES, "How often drafting paused for that.")
        super().__init__((self.low, self.alarms, self.paused, self.pauses))


@functools.cache
def _watch() -> Watch:
    return Watch()


def count_watched(watched: Watched, engine: int = 0) -> None:
    """Count what a scheduler says of a step.

    Args:
        watched: at the step's end.
        engine: its number, 0 for the only one.
    """
    metrics, label = _watch(), str(engine)
    # Each time: of several API servers the one that was told last says how it is.
    metrics.of(metrics.low, label).set(watched.is_low)
    metrics.of(metrics.paused, label).set(watched.is_paused)
    # Nothing is added as a rule; then a counter that says 0 is there.
    metrics.of(metrics.alarms, label).inc(watched.alarms)
    metrics.of(metrics.pauses, label).inc(watched.pauses)
