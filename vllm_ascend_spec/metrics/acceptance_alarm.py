"""Metrics of the acceptance alarm and of pauses in drafting."""

from __future__ import annotations

import functools

from vllm_ascend_spec.control.told import Watched
from vllm_ascend_spec.metrics.group import Group, counter, gauge

LOW = "vllm:spec_decode_acceptance_low"
ALARMS = "vllm:spec_decode_acceptance_alarms"
PAUSED = "vllm:spec_decode_drafting_paused"
PAUSES = "vllm:spec_decode_drafting_pauses"


class Watch(Group):
    """Gauges of two states, and counters of how often each began."""

    def __init__(self) -> None:
        self.low = gauge(LOW, "Whether drafts are hardly accepted.")
        self.alarms = counter(ALARMS, "How often it came to find so.")
        self.paused = gauge(PAUSED, "Whether no drafts are made, because they do not pay.")
        self.pauses = counter(PAUSES, "How often drafting paused for that.")
        super().__init__((self.low, self.alarms, self.paused, self.pauses))


@functools.cache
def _watch() -> Watch:
    return Watch()


def count_watched(watched: Watched, engine: int = 0) -> None:
    """Record what a scheduler reports of a step.

    Args:
        watched: the states at the step's end.
        engine: number of the engine; 0 if there is only one.
    """
    metrics, label = _watch(), str(engine)
    # Set in every step: with several API servers the last one to set it determines the value.
    metrics.of(metrics.low, label).set(watched.is_low)
    metrics.of(metrics.paused, label).set(watched.is_paused)
    # Usually adds 0, so that the counter exists with a value of 0.
    metrics.of(metrics.alarms, label).inc(watched.alarms)
    metrics.of(metrics.pauses, label).inc(watched.pauses)
