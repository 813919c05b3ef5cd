"""Counters of what is collected of live traffic; they are there only where something is."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

ANSWERS, BYTES = "vllm:collected_answers", "vllm:collected_bytes"
ABOUT_ANSWERS = (
    "Answers chosen to be collected, by outcome: written, full (collect_max_bytes is reached), "
    "busy (the disk is too slow), failed (the disk refuses), key (an access key is in the text)."
)
ABOUT_BYTES = "Bytes written of collected answers."
LABEL = "outcome"
OUTCOMES = WRITTEN, FULL, BUSY, FAILED, KEY = ("written", "full", "busy", "failed", "key")


class Collected:
    """The counters, registered so that vLLM does not unregister them; see ``rule.py``."""

    def __init__(self) -> None:
        from prometheus_client import REGISTRY, Counter

        self._answers = Counter(ANSWERS, ABOUT_ANSWERS, [LABEL], registry=None)
        self._bytes = Counter(BYTES, ABOUT_BYTES, registry=None)
        for outcome in OUTCOMES:
            self._answers.labels(outcome)
        REGISTRY.register(self)

    def collect(self) -> Iterable[Any]:
        """Return the counters."""
        return [*self._answers.collect(), *self._bytes.collect()]

    def count(self, outcome: str, answers: int, num_bytes: int) -> None:
        """Count answers with the same outcome."""
        self._answers.labels(outcome).inc(answers)
        self._bytes.inc(num_bytes)


@functools.cache
def collected() -> Collected:
    """Return the counters of this process, from the first call on at ``/metrics``."""
    return Collected()


def count_collected(outcome: str, answers: int = 1, num_bytes: int = 0) -> None:
    """Count answers that were chosen.

    Args:
        outcome: what became of them, one of :data:`OUTCOMES`.
        answers: their number.
        num_bytes: bytes that were written.
    """
    collected().count(outcome, answers, num_bytes)
