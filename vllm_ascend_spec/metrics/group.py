"""Groups of our own metrics in prometheus_client's registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any


class Group:
    """Registers metrics in a way that vLLM does not unregister; see ``rule.py``.

    Args:
        metrics: metrics created with ``registry=None``.
    """

    def __init__(self, metrics: Sequence[Any]) -> None:
        from prometheus_client import REGISTRY

        self._metrics = metrics
        REGISTRY.register(self)

        # Cached: it runs in every step, and a lookup by labels takes longer than counting.
        self.of = cache(_labelled)

    def collect(self) -> Iterable[Any]:
        """Return the metrics that have samples."""
        found = (family for metric in self._metrics for family in metric.collect())
        return [family for family in found if family.samples]


def counter(name: str, about: str, *labels: str) -> Any:
    """Return a counter for a group, with the engine's number as its first label."""
    from prometheus_client import Counter

    return Counter(name, about, labelnames=["engine", *labels], registry=None)


def histogram(name: str, about: str, buckets: Sequence[float], *labels: str) -> Any:
    """Return a histogram for a group, with the engine's number as its first label."""
    from prometheus_client import Histogram

    return Histogram(name, about, labelnames=["engine", *labels], buckets=buckets, registry=None)


def gauge(name: str, about: str) -> Any:
    """Return a gauge for a group, with the engine's number as its label."""
    from prometheus_client import Gauge

    # As vLLM's gauges: one line for each engine, however many API servers there are.
    return Gauge(name, about, labelnames=["engine"], registry=None, multiprocess_mode="mostrecent")


def _labelled(metric: Any, *labels: str) -> Any:
    return metric.labels(*labels)
