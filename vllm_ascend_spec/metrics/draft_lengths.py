"""Counter of steps by how many drafts they make, and why as many.

``vllm:spec_decode_draft_length_steps{k=…,reason=…}``; the reasons are those of ``control/``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from vllm_ascend_spec.control.told import METRIC, Told


class DraftLengthsCollector:
    """Brings the counter to prometheus_client's registry, past vLLM's broom; see ``rule.py``."""

    def __init__(self) -> None:
        from prometheus_client import REGISTRY, Counter

        self.steps = Counter(
            METRIC,
            "Steps by how many drafts they make for each request, and why as many.",
            labelnames=["engine", "k", "reason"],
            registry=None,
        )
        REGISTRY.register(self)

    def collect(self) -> Iterable[Any]:
        """Return the counter; without samples where no engine speculates."""
        return self.steps.collect()


@functools.cache
def _collector() -> DraftLengthsCollector:
    return DraftLengthsCollector()


def count_length(told: Told, engine: int = 0) -> None:
    """Count a step.

    Args:
        told: what its scheduler says of it.
        engine: its number, 0 for the only one.
    """
    _collector().steps.labels(str(engine), str(told.drafts), told.reason).inc()
