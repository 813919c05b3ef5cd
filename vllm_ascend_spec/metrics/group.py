"""Metrics of ours that are counted together, in prometheus_client's registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any


class Group:
    """Brings metrics to the registry, past vLLM's broom; see ``rule.py``.

    Args:
        metrics: made without a registry of their own.
    """

    def __init__(self, metrics: Sequence[Any]) -> None:
        from prometheus_client import REGISTRY

        self._metrics = metrics
        REGISTRY.register(self)

        # Looking one up by its labels takes longer than counting, and every step counts.
        self.of = cache(_labelled)

    def collect(self) -> Iterable[Any]:
        """Return all that were counted; nothing of an engine that has none of them."""
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

    # As vLLM's own: one line for each engine, however many API servers.
    return Gauge(name, about, labelnames=["engine"], registry=None, multiprocess_mode="mostrecent")


def _labelled(metric: Any, *labels: str) -> Any:
    return metric.labels(*labels)
