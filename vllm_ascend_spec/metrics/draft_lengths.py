"""Counter of steps by K, the number of drafts, and by the reason for this K.

``vllm:spec_decode_draft_length_steps{k=…,reason=…}``; the reasons are those of ``control/``.
"""

from __future__ import annotations

import functools

from vllm_ascend_spec.control.told import METRIC, Told
from vllm_ascend_spec.metrics.group import Group, counter


class DraftLengths(Group):
    """One counter; it has no samples if no engine speculates."""

    def __init__(self) -> None:
        about = "Steps by how many drafts they make for each request, and why as many."
        self.steps = counter(METRIC, about, "k", "reason")
        super().__init__((self.steps,))


@functools.cache
def _lengths() -> DraftLengths:
    return DraftLengths()


def count_length(told: Told, engine: int = 0) -> None:
    """Count a step.

    Args:
        told: what the scheduler reports of the step.
        engine: number of the engine; 0 if there is only one.
    """
    metrics = _lengths()
    metrics.of(metrics.steps, str(engine), str(told.drafts), told.reason).inc()
