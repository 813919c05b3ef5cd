"""A drawing of losses and accuracies by step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.atomic import write_whole

WARNING = "is not drawn: matplotlib is missing; pip install matplotlib"
# What is drawn of the accuracies: one curve per draft.
ACCURACIES = ("full_acc_", "position_")


def draw_curves(metrics: Path, path: Path) -> str | None:
    """Draw what was logged so far.

    Args:
        metrics: the file of ``run_log.py``.
        path: of the PNG.

    Returns:
        Why there is no drawing, or None.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return f"{path.name} {WARNING}"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    losses, rates = figure.subplots(1, 2)
    for part, style in (("train", "-"), ("watched", "o-")):
        found = [(line["step"], line[part]) for line in lines if part in line]
        losses.plot(*_column(found, "loss"), style, label=part, markersize=3)
        for name in _accuracies(found) if part == "watched" else ():
            rates.plot(*_column(found, name), style, label=name, markersize=3)
    losses.set(xlabel="step", ylabel="loss")
    rates.set(xlabel="step", ylabel="drafts that are right", ylim=(0, 1))
    for axes in (losses, rates):
        if axes.lines:
            axes.legend(fontsize="small")
    write_whole(path, partial(figure.savefig, format="png", dpi=100))
    return None


def _column(found: list[tuple[int, dict[str, Any]]], name: str) -> tuple[list[int], list[float]]:
    return [step for step, _ in found], [values[name] for _, values in found]


def _accuracies(found: list[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    for name in found[-1][1] if found else ():
        if name.startswith(ACCURACIES):
            yield name
