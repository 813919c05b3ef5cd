"""Draw line charts as inline SVG, which needs no library and no other file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 430, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 26, 36
# Colour-blind people can tell these apart, too (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#882255")


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: name in the legend, which the page draws.
        colour: colour of the line.
        values: one for each label of the x axis.
        notes: tooltip of each point.
        spread: lowest and highest value at each label, drawn as a band; empty for no band.
    """

    name: str
    colour: str
    values: Sequence[float]
    notes: Sequence[str]
    spread: Sequence[tuple[float, float]] = ()


def colour_of(place: int) -> str:
    """Return the colour of the line with this index."""
    return COLOURS[place % len(COLOURS)]


def ticks(highest: float, most: int = 5) -> list[float]:
    """Return round numbers from 0 to at least ``highest``."""
    if not highest > 0:
        return [0.0, 1.0]
    rough = highest / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    return [step * place for place in range(math.ceil(highest / step - 1e-9) + 1)]


def line_chart(title: str, x_name: str, labels: Sequence[str], lines: Sequence[Line]) -> str:
    """Return a chart whose y axis starts at 0 and whose labels are evenly spaced.

    Args:
        title: text above the chart.
        x_name: text below the chart.
        labels: labels of the x axis.
        lines: lines with a value for every label.
    """
    highest = max(
        (high for line in lines for high in (*line.values, *(h for _, h in line.spread))),
        default=0.0,
    )
    marks = ticks(highest)
    across = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)

    def x(place: int) -> float:
        return round(LEFT + across * (place + 0.5), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / marks[-1], 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        _text(LEFT, 14, title, "start"),
        _text((LEFT + WIDTH) // 2, HEIGHT - 5, x_name),
    ]
    for mark in marks:
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark)}" y2="{y(mark)}" class="grid"/>'
        )
        parts.append(_text(LEFT - 5, y(mark) + 4, f"{mark:g}", "end"))
    parts += [_text(x(place), HEIGHT - BOTTOM + 15, label) for place, label in enumerate(labels)]
    for line in lines:
        parts += _line(line, x, y)
    return "".join([*parts, "</svg>"])


def _line(line: Line, x: Callable[[int], float], y: Callable[[float], float]) -> list[str]:
    """Return a line with its band and points.

    Args:
        line: the line to draw.
        x: returns the x coordinate of a label, from its index.
        y: returns the y coordinate of a value.
    """
    parts = []
    points = [(x(place), y(value)) for place, value in enumerate(line.values)]
    if line.spread:
        there = [(x(place), y(high)) for place, (_, high) in enumerate(line.spread)]
        back = [(x(place), y(low)) for place, (low, _) in enumerate(line.spread)][::-1]
        parts.append(
            f'<polygon points="{_points(there + back)}" fill="{line.colour}" opacity="0.15"/>'
        )
    parts.append(
        f'<polyline points="{_points(points)}" fill="none" stroke="{line.colour}" '
        'stroke-width="2"/>'
    )
    parts += [
        f'<circle cx="{a}" cy="{b}" r="3.5" fill="{line.colour}">'
        f"<title>{escape(note)}</title></circle>"
        for (a, b), note in zip(points, line.notes, strict=True)
    ]
    return parts


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a},{b}" for a, b in points)


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
