"""Count from nothing, and leave the process's counters as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import REGISTRY

from vllm_ascend_spec.metrics import step_metrics


@contextmanager
def apart() -> Iterator[None]:
    """Put fresh metrics of steps in the place of the process's."""
    theirs = step_metrics.step_metrics()
    REGISTRY.unregister(theirs)
    fresh = step_metrics.StepMetrics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_metrics, "step_metrics", lambda: fresh)
        try:
            yield
        finally:
            REGISTRY.unregister(fresh)
            REGISTRY.register(theirs)
