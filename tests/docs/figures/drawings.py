"""Drawings of records and of a simulation, as SVG: bars in panels of one size, on white."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.control.simulated import Engine, adaptive
from tests.docs.blocks import ROOT
from tests.docs.figures.rows import Record, read

FOLDER = ROOT / "docs" / "drawings"
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
COLOURS = ("#c7000b", "#b9c4d3", "#7d95b5", "#2f5c94")
MARGIN, LEGEND, TITLE, AXIS, GAP = 16, 44, 24, 22, 14


@dataclass(frozen=True)
class Panel:
    """One diagram.

    Attributes:
        title: what stands above it.
        bars: names of the bars, and shares of 1: lowest first where they are stacked.
    """

    title: str
    bars: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Drawing:
    """Panels, from left to right and from top to bottom.

    Attributes:
        title: what the picture shows.
        legend: a name and a colour for each share of a bar.
        bars: what the numbers below the bars are.
        panels: the diagrams.
        columns: panels in a row.
        size: width and height of the bars' area of a panel.
        stacked: whether the shares of a bar stand on each other, or side by side.
    """

    title: str
    legend: Mapping[str, str]
    bars: str
    panels: Sequence[Panel]
    columns: int
    size: tuple[int, int]
    stacked: bool


def lengths() -> Drawing:
    """Return which K ``adaptive`` chose: a panel for each mode and temperature."""
    panels: dict[str, dict[str, list[float]]] = {}
    for mode in ("eager", "compiled"):
        for load, cell in read(f"adaptive-cpu-{mode}")["cells"].items():
            clients, _, temperature = load.split(", ")
            steps = cell["steps"]["adaptive"]
            shares = [steps.get(str(k), {"share": 0.0})["share"] for k in range(len(COLOURS))]
            panels.setdefault(f"{mode}, {temperature}", {})[clients.split()[0]] = shares
    return Drawing(
        "adaptive: share of steps by K, for 1 to 16 clients",
        {f"K = {k}": colour for k, colour in enumerate(COLOURS)},
        "clients",
        [Panel(title, bars) for title, bars in panels.items()],
        columns=2,
        size=(260, 130),
        stacked=True,
    )


def over_time() -> Drawing:
    """Return which K ``adaptive`` chooses while a simulated load changes, by hundreds of steps."""

    def cost(requests: int, rows: int, drafts: int) -> float:
        return 0.010 + 0.0015 * max(0, rows - 8) + 0.0003 * drafts

    engine = Engine(cost, rate=0.7)
    adaptive(engine, ([1] * 900 + [16] * 300) * 2, range(len(COLOURS)))
    windows = [engine.chosen[start : start + 100] for start in range(0, len(engine.chosen), 100)]
    shares = {
        str(number): [window.count(k) / len(window) for k in range(len(COLOURS))]
        for number, window in enumerate(windows, start=1)
    }
    return Drawing(
        "adaptive over time, simulated: 1 request for 900 steps, then 16 for 300, twice",
        {f"K = {k}": colour for k, colour in enumerate(COLOURS)},
        "hundreds of steps",
        [Panel("1 request for 900 steps, then 16 for 300, twice", shares)],
        columns=1,
        size=(534, 130),
        stacked=True,
    )


def positions() -> Drawing:
    """Return the share of steps with drafts that accepted each position, by method."""
    record = json.loads((ROOT / "examples" / "zoo" / "evaluation.json").read_text())
    return Drawing(
        "Share of the steps with drafts that accepted draft 1, 2 and 3",
        {"greedy": COLOURS[3], "T=0.8": COLOURS[1]},
        "position of the draft",
        [
            Panel(name, by_position(found))
            for name, found in record["results"].items()
            if "sampled drafts" not in name
        ],
        columns=4,
        size=(128, 70),
        stacked=False,
    )


def by_position(found: Record) -> dict[str, tuple[float, ...]]:
    """Return a bar for each position, with its share for greedy and for sampled requests."""
    pairs = zip(found["greedy"]["per_position"], found["T=0.8"]["per_position"], strict=True)
    return {str(position): pair for position, pair in enumerate(pairs, start=1)}


DRAWINGS: Mapping[str, Callable[[], Drawing]] = {
    "lengths": lengths,
    "over_time": over_time,
    "positions": positions,
}


def svg(drawing: Drawing) -> str:
    """Return a drawing's text."""
    width, height = drawing.size
    rows = -(-len(drawing.panels) // drawing.columns)
    across, down = width + GAP, TITLE + height + AXIS
    box = f"{2 * MARGIN + drawing.columns * across - GAP} {LEGEND + MARGIN + rows * down}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {box}" font-family="{FONT}"'
        ' font-size="14" fill="#1c2530">',
        f"<title>{drawing.title}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        *legend(drawing),
    ]
    for number, panel in enumerate(drawing.panels):
        row, column = divmod(number, drawing.columns)
        place = (MARGIN + column * across, LEGEND + row * down + TITLE)
        lines += panel_lines(drawing, panel, place)
    return "\n".join([*lines, "</svg>\n"])


def legend(drawing: Drawing) -> Iterator[str]:
    """Yield the legend's line."""
    for number, (name, colour) in enumerate(drawing.legend.items()):
        left = MARGIN + number * 90
        yield f'<rect x="{left}" y="16" width="14" height="14" fill="{colour}"/>'
        yield f'<text x="{left + 20}" y="28">{name}</text>'
    left = MARGIN + len(drawing.legend) * 90
    yield f'<text x="{left}" y="28">below: {drawing.bars}</text>'


def panel_lines(drawing: Drawing, panel: Panel, place: tuple[int, int]) -> Iterator[str]:
    """Yield a panel's lines.

    Args:
        drawing: what it is a part of.
        panel: the panel.
        place: left and upper edge of its bars' area.
    """
    (left, top), (width, height) = place, drawing.size
    colours = tuple(drawing.legend.values())
    slot = width / len(panel.bars)
    yield f'<text x="{left}" y="{top - 7}" font-weight="600">{panel.title}</text>'
    yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="#f2f4f7"/>'
    for number, (name, shares) in enumerate(panel.bars.items()):
        start, base = left + (number + 0.15) * slot, float(top + height)
        wide = 0.7 * slot / (1 if drawing.stacked else len(shares))
        for share, colour in zip(shares, colours, strict=True):
            tall = share * height
            yield (
                f'<rect x="{start:.1f}" y="{base - tall:.1f}" width="{wide:.1f}"'
                f' height="{tall:.1f}" fill="{colour}"/>'
            )
            base -= tall if drawing.stacked else 0
            start += 0 if drawing.stacked else wide
        middle = left + (number + 0.5) * slot
        yield f'<text x="{middle:.1f}" y="{top + height + 16}" text-anchor="middle">{name}</text>'
