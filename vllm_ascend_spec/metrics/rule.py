"""Gauge of the engine's verification rule, to be read with vLLM's acceptance counters.

Synthetic acceptance makes these counters meaningless as acceptance; a reader must be able to tell.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import Any

from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.rules import SYNTHETIC
from vllm_ascend_spec.config.schema import VERIFY_RULES
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.metrics.prometheus import read_samples

NAME = "vllm:spec_decode_verify_rule"
ABOUT = "1 for the acceptance rule of requests without a seed; synthetic is not lossless."
LABELS = ("rule", "lossless")


class RuleCollector:
    """Registers the gauge in prometheus_client's registry.

    When vLLM starts to log, which is after it asks the platform, it unregisters every metric whose
    name is like its own (vllm/v1/metrics/prometheus.py:unregister_vllm_metrics). It finds them by
    an attribute that this class lacks.
    """

    def __init__(self) -> None:
        from prometheus_client import REGISTRY, Gauge

        self.gauge = Gauge(
            NAME,
            ABOUT,
            labelnames=LABELS,
            registry=None,
            multiprocess_mode="mostrecent",  # as vLLM's own; one line, however many API servers
        )
        self.rule: str | None = None
        REGISTRY.register(self)

    def collect(self) -> Iterable[Any]:
        """Return the gauge; nothing before it is set."""
        return self.gauge.collect() if self.rule else []

    def set(self, rule: str | None) -> None:
        """Replace the rule; one engine at a time, as with vLLM's counters."""
        if rule == self.rule:
            return
        if self.rule is not None:
            self.gauge.clear()
        self.rule = rule
        if rule is not None:
            self.gauge.labels(rule=rule, lossless=str(rule != SYNTHETIC).lower()).set(1)


@functools.cache
def _collector() -> RuleCollector:
    return RuleCollector()


def publish_rule(rule: str | None) -> None:
    """Set the gauge ``vllm:spec_decode_verify_rule{rule=…,lossless=…}`` of this process to 1.

    Args:
        rule: ``token``, ``block``, ``seeded`` or ``synthetic``; None for an engine without
            speculation, which clears the rule of an earlier engine.
    """
    _collector().set(rule)


def announce_rule(speculation: SpecConfig | None) -> None:
    """Publish the rule of an engine, and log the notes and warnings about its options."""
    publish_rule(speculation.rule if speculation is not None else None)
    if speculation is None:
        return
    for note in speculation.notes:
        log_once(logging.INFO, note)
    for warning in speculation.warnings:
        log_once(logging.WARNING, warning)


def rule_from_prometheus(text: str) -> str | None:
    """Read the rule from a server's ``/metrics``; None if it says nothing."""
    samples = (s for s in read_samples(text, NAME) if s.name == NAME and s.value == 1)
    return next((s.labels["rule"] for s in samples if "rule" in s.labels), None)


def rule_from_engine(metrics: Iterable[Any]) -> str | None:
    """Read the rule from what ``LLM.get_metrics()`` returns; None if it says nothing."""
    return next((m.labels["rule"] for m in metrics if m.name == NAME and m.value == 1), None)


def note_on_rule(rule: str | None) -> str:
    """Return what to print after acceptance, with a leading space; empty for the default rule."""
    if rule in (None, VERIFY_RULES[0]):
        return ""
    return f" ({rule}, not lossless)" if rule == SYNTHETIC else f" ({rule} rule)"
