"""Which rule the engine verifies by, as a label beside vLLM's acceptance counters.

Synthetic acceptance makes these counters meaningless as acceptance; a reader must be able to tell.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.log import log_once

if TYPE_CHECKING:
    from vllm_ascend_spec.config.schema import SpecOptions

NAME = "vllm:spec_decode_verify_rule"
SYNTHETIC = "synthetic"
_SAMPLE = re.compile(rf'^{NAME}\{{.*?rule="(\w+)".*?\}} 1\.0$', re.MULTILINE)


def publish_rule(rejection_sample_method: str, options: SpecOptions) -> None:
    """Set the gauge ``vllm:spec_decode_verify_rule{rule=…,lossless=…}`` of this process to 1.

    Warns if the rule is synthetic: the text is then not the target's.
    """
    synthetic = rejection_sample_method == SYNTHETIC
    if synthetic:
        log_once(
            logging.WARNING,
            "rejection_sample_method='synthetic' accepts drafts at given rates: the output is not "
            "the target's and acceptance is made up; use it for benchmarks only.",
        )
    gauge = _gauge()
    gauge.clear()  # one engine configuration at a time; a later one replaces it
    rule = SYNTHETIC if synthetic else options.verify_rule
    gauge.labels(rule=rule, lossless=str(not synthetic).lower()).set(1)


@functools.cache
def _gauge() -> Any:
    from prometheus_client import Gauge

    return Gauge(NAME, "Rule by which drafts are accepted.", labelnames=["rule", "lossless"])


def rule_from_prometheus(text: str) -> str | None:
    """Read the rule from a server's ``/metrics``; None if it says nothing."""
    match = _SAMPLE.search(text)
    return match.group(1) if match else None


def rule_from_engine(metrics: Any) -> str | None:
    """Read the rule from what ``LLM.get_metrics()`` returns."""
    return next((m.labels["rule"] for m in metrics if m.name == NAME and m.value == 1), None)
