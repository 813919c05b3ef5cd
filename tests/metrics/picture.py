"""Draw the dashboard of ``examples/grafana/``: ``python -m tests.metrics.picture FILE``.

Grafana is not among what these tests can install. So this draws, from the dashboard's own file, its
panels at their places, with what a real Prometheus answers to their queries while a server works.
What is drawn is the data, not Grafana's looks.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai

from tests.benchmarks.picture import save
from tests.metrics.dashboard import FOLDER, filled, read
from tests.metrics.prometheus_server import Prometheus
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.server import Server

ENGLISH = FOLDER / "dashboards" / "speculation.json"
ARGUMENTS = ("--enforce-eager", "--dtype", "float32", "--max-num-seqs", "16", "--additional-config")
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
# Clients and temperature, one load after the other.
LOADS = ((1, 0.0), (16, 0.0), (2, 0.8), (16, 0.8), (1, 0.0))
PROMPTS = ("import os\n\ndef ", "class Queue:\n    def ", "The future of AI is")
STEP_S, INTERVAL = 1.0, "10s"
COLUMNS = 24


def work(server: Server, clients: int, temperature: float, seconds: float) -> None:
    """Let clients ask, each when it has its answer, for a while."""
    until = time.monotonic() + seconds

    def ask(place: int) -> None:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY")
        while time.monotonic() < until:
            client.completions.create(
                model=TARGET,
                prompt=PROMPTS[place % len(PROMPTS)],
                max_tokens=64,
                temperature=temperature,
                extra_body={"ignore_eos": True},
            )

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(clients)))


def answers(
    prometheus: Prometheus, dashboard: Mapping[str, Any], start: float, end: float
) -> dict[int, list[tuple[str, list[tuple[float, float]]]]]:
    """Return, by panel, the lines that its queries make: their names and points."""
    found: dict[int, list[tuple[str, list[tuple[float, float]]]]] = {}
    for panel in dashboard["panels"]:
        lines = found.setdefault(panel["id"], [])
        for target in panel["targets"]:
            result = prometheus.ask(
                "query_range",
                query=filled(target["expr"], INTERVAL),
                start=f"{start}",
                end=f"{end}",
                step=f"{STEP_S}",
            )["result"]
            for series in result:
                points = [(float(at) - start, float(value)) for at, value in series["values"]]
                lines.append((named(target["legendFormat"], series["metric"]), points))
    return found


def named(legend: str, labels: Mapping[str, str]) -> str:
    """Return a legend with its labels filled in, as Grafana does: ``{{method}}``."""
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend


def draw(dashboard: Mapping[str, Any], lines: Mapping[int, Sequence[Any]]) -> Any:
    """Return a figure with each panel where the dashboard has it."""
    from matplotlib.figure import Figure

    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    figure = Figure(figsize=(15, rows * 0.42), layout="constrained")
    grid = figure.add_gridspec(rows, COLUMNS)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        axes = figure.add_subplot(
            grid[place["y"] : place["y"] + place["h"], place["x"] : place["x"] + place["w"]]
        )
        axes.set_title(panel["title"], fontsize=10, loc="left")
        (draw_value if panel["type"] == "stat" else draw_lines)(axes, panel, lines[panel["id"]])
    title = f"{dashboard['title']}: its queries, answered by Prometheus; not drawn by Grafana"
    figure.suptitle(title)
    return figure


def draw_value(axes: Any, panel: Mapping[str, Any], lines: Sequence[Any]) -> None:
    """Write a panel's last value, or its name where the value says nothing but yes."""
    axes.axis("off")
    texts = []
    for name, points in lines:
        value = next((v for _, v in reversed(points) if not math.isnan(v)), math.nan)
        texts.append(name if "{{" in panel["targets"][0]["legendFormat"] else f"{value:.4g}")
    axes.text(0.5, 0.5, "\n".join(texts) or "no data", ha="center", va="center", fontsize=16)


def draw_lines(axes: Any, panel: Mapping[str, Any], lines: Sequence[Any]) -> None:
    """Draw a panel's values over time."""
    for name, points in lines:
        axes.plot(*zip(*points, strict=True), label=name, linewidth=1)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("s", fontsize=7)
    if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
        axes.set_ylim(0, 1)
    if lines:
        axes.legend(fontsize=6, loc="upper left", ncols=2)
    else:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)


def main() -> None:
    """Serve, ask, scrape and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=25.0, help="of each load")
    args = parser.parse_args()
    section = '{"ascend_spec": {"draft_length": "adaptive"}}'
    dashboard = read(ENGLISH)
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(
            TARGET, SPECS["eagle"], arguments=(*ARGUMENTS, section), environment=ENVIRONMENT
        ) as server,
        Prometheus(server.port, Path(folder)) as prometheus,
    ):
        work(server, 1, 0.0, 5.0)
        start = time.time()
        for clients, temperature in LOADS:
            work(server, clients, temperature, args.seconds)
        print(
            save(draw(dashboard, answers(prometheus, dashboard, start, time.time())), args.output)
        )


if __name__ == "__main__":
    main()
