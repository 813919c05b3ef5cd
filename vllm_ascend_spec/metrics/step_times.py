"""Counters of the seconds spent in steps, and in their verification and drafting parts."""

from __future__ import annotations

import functools

from vllm_ascend_spec.metrics.group import Group, counter
from vllm_ascend_spec.step_text import Times

STEP = "vllm:spec_decode_step_seconds"
VERIFICATION = "vllm:spec_decode_verification_seconds"
DRAFTING = "vllm:spec_decode_drafting_seconds"


class StepTimes(Group):
    """The three counters."""

    def __init__(self) -> None:
        self.step = counter(STEP, "Seconds of the host in a model runner's steps.")
        self.verification = counter(
            VERIFICATION, "Of these, in masks of structured output, sampling and verification."
        )
        self.drafting = counter(DRAFTING, "Of these, in making drafts.")
        super().__init__((self.step, self.verification, self.drafting))


@functools.cache
def _step_times() -> StepTimes:
    return StepTimes()


def count_times(times: Times, engine: int = 0) -> None:
    """Count the times that a worker reports.

    Args:
        times: the times since its last report.
        engine: number of the engine; 0 if there is only one.
    """
    counters, label = _step_times(), str(engine)
    counters.of(counters.step, label).inc(1e-6 * times.step)
    counters.of(counters.verification, label).inc(1e-6 * times.verification)
    counters.of(counters.drafting, label).inc(1e-6 * times.drafting)
