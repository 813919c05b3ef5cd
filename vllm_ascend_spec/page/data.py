"""What the page shows, read from the metrics of the process, or of all API servers together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.metrics.collected import ANSWERS, BYTES, LABEL
from vllm_ascend_spec.metrics.step_metrics import METRICS


@dataclass(frozen=True)
class Figure:
    """A number on the page, or several by label, summed over all engines.

    Attributes:
        sample: name of the samples that are summed.
        by: labels to group by; empty for a single number.
    """

    sample: str
    by: tuple[str, ...] = ()


# Keyed by the names that the page uses.
FIGURES: Mapping[str, Figure] = {
    "tokens": Figure("vllm:generation_tokens_total"),
    "running": Figure("vllm:num_requests_running"),
    "waiting": Figure("vllm:num_requests_waiting"),
    **{
        metric.figure: Figure(metric.sample_name, metric.labels)
        for metric in METRICS
        if metric.figure
    },
    "collected": Figure(f"{ANSWERS}_total", (LABEL,)),
    "collected_bytes": Figure(f"{BYTES}_total"),
}


def figures(families: Iterable[Any]) -> dict[str, Any]:
    """Return every figure by its name.

    Args:
        families: what a registry of prometheus_client collects.
    """
    wanted = {figure.sample: (name, figure.by) for name, figure in FIGURES.items()}
    found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in FIGURES}
    for family in families:
        for sample in family.samples:
            if sample.name not in wanted:
                continue
            name, by = wanted[sample.name]
            key = tuple(sample.labels.get(label, "") for label in by)
            found[name][key] = found[name].get(key, 0.0) + sample.value
    return {name: _shown(FIGURES[name].by, values) for name, values in found.items()}


def _shown(by: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Any:
    if not by:
        return sum(values.values())
    return [
        {**dict(zip(by, key, strict=True)), "value": value} for key, value in sorted(values.items())
    ]
