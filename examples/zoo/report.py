"""Put what the zoo's drafts are worth into the documents: a table, and acceptance by position.

    python examples/zoo/report.py

Reads ``evaluation.json``, which evaluate.py writes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parent
ROOT = ZOO.parents[1]
RECORD = ZOO / "evaluation.json"
PAGES = (ZOO / "README.md", ROOT / "docs" / "performance.md")
PICTURE = ROOT / "docs" / "records" / "acceptance.svg"
# The table stands between these two lines of a page.
BEGIN, END = "<!-- acceptance: python examples/zoo/report.py -->", "<!-- end of acceptance -->"


def cell(result: dict[str, Any]) -> str:
    """Return tokens per step, the share of steps that accepted each draft, and of repetitions."""
    shares = ", ".join(f"{share:.0%}" for share in result["per_position"])
    looping = f"looping {result['repeated_4grams']:.0%}"
    return f"**{result['tokens_per_step']:.2f}** ({shares}; {looping})"


def table(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table, one row for each way to draft."""
    requests = list(next(iter(results.values())))
    lines = ["| draft | " + " | ".join(requests) + " |", "|---" * (1 + len(requests)) + "|"]
    for name, result in results.items():
        cells = " | ".join(cell(result[request]) for request in requests)
        lines.append(f"| {name} | {cells} |")
    return lines


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the share of steps that accepted the draft at each position, by kind of request."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    requests = list(next(iter(results.values())))
    widest = max(len(kind["per_position"]) for found in results.values() for kind in found.values())
    figure = Figure(figsize=(4.2 * len(requests), 3.8), layout="constrained")
    axes = figure.subplots(1, len(requests), sharey=True, squeeze=False)[0]
    for axis, request in zip(axes, requests, strict=True):
        for name, result in results.items():
            shares = result[request]["per_position"]
            axis.plot(range(1, len(shares) + 1), shares, marker="o", markersize=3, label=name)
        axis.set_title(request, fontsize=9)
        axis.set_xlabel("draft position")
        axis.set_xticks(range(1, widest + 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of steps that accept it")
    axes[0].set_ylim(0, 1)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    FigureCanvasSVG(figure)
    figure.savefig(path, metadata={"Date": None})


def with_table(page: str, lines: list[str]) -> str:
    """Return a page with its table replaced."""
    before, _, rest = page.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(f"{END}\n")
    return "\n".join([f"{before}{BEGIN}", *lines, f"{END}\n{after}"])


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    results = json.loads(RECORD.read_text())["results"]
    for page in PAGES:
        page.write_text(with_table(page.read_text(), table(results)))
    draw(results, PICTURE)


if __name__ == "__main__":
    main()
