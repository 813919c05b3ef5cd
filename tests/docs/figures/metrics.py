"""Our metrics, from the objects that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.figures.rows import row
from vllm_ascend_spec.metrics import collected, rule
from vllm_ascend_spec.metrics.step_metrics import METRICS


def rows() -> Iterator[str]:
    """Yield a metric, its type, its labels and its help."""
    for metric in METRICS:
        yield _row(metric.sample_name, metric.kind, ("engine", *metric.labels), metric.about)
    yield _row(f"{collected.ANSWERS}_total", "counter", (collected.LABEL,), collected.ABOUT_ANSWERS)
    yield _row(f"{collected.BYTES}_total", "counter", (), collected.ABOUT_BYTES)
    yield _row(rule.NAME, "gauge", rule.LABELS, rule.ABOUT)


def _row(name: str, kind: str, labels: tuple[str, ...], about: str) -> str:
    return row(f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), about)
