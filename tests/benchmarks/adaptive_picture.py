"""Draw the picture of ``benchmarks adaptive``: tokens per second and K over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.adaptive import chosen_in
from tests.benchmarks.picture import NO_MATPLOTLIB, save

Trace = Sequence[Sequence[Any]]


def draw(record: Mapping[str, Any], path: Path) -> str:
    """Draw a record with traces, two panels per load; return a line that says what was done.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return NO_MATPLOTLIB
    loads = record["traces"]
    longest = record["plan"]["speculative_config"]["num_speculative_tokens"]
    figure = Figure(figsize=(10, 5 * len(loads)), layout="constrained")
    # All panels share one time axis.
    panels: list[Any] = list(figure.subplots(2 * len(loads), 1, sharex=True, squeeze=False)[:, 0])
    figure.suptitle("Speed and K while the load alternates")
    for place, (load, traces) in enumerate(loads.items()):
        speeds, lengths = panels[2 * place], panels[2 * place + 1]
        chosen = chosen_in(traces)
        for name, trace in traces.items():
            width = 2.0 if name == chosen else 1.0
            speeds.plot(*speed_over_time(trace), label=name, linewidth=width)
        times = [point[0] for point in traces[chosen]]
        lengths.step(times, [point[2] for point in traces[chosen]], where="pre", color="black")
        speeds.set_title(load, loc="left", fontsize="small")
        speeds.set_ylabel("tokens/s")
        lengths.set_ylabel(f"K, {chosen}")
        lengths.yaxis.set_major_locator(MaxNLocator(integer=True))
        lengths.set_ylim(-0.2, longest + 0.2)
        lengths.set_xlabel("seconds")
        for panel in (speeds, lengths):
            panel.grid(alpha=0.3)
            panel.tick_params(labelbottom=True)
    panels[0].legend(fontsize="small")
    return save(figure, path)


def speed_over_time(trace: Trace, points: int = 12) -> tuple[list[float], list[float]]:
    """Return times in seconds, and tokens per second over ``points`` points of a trace each."""
    times, speeds = [], []
    for before, now in zip(trace, trace[points:], strict=False):
        if now[0] > before[0]:
            times.append(now[0])
            speeds.append((now[1] - before[1]) / (now[0] - before[0]))
    return times, speeds
