"""Show the record of ``benchmarks verify`` as Markdown and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.picture import NO_MATPLOTLIB, save
from tests.benchmarks.verify.cases import KINDS
from tests.benchmarks.verify.peers import BY_TOKEN_RULE
from tests.benchmarks.verify.summary import aim_lines
from vllm_ascend_spec.bench.stats import Summary

Row = Mapping[str, Any]
NONE = "-"
HEAD = (
    "case",
    "V",
    "B",
    "ours, ms",
    "vLLM, ms",
    "vLLM / ours",
    "PyTorch, ms",
    "PyTorch / ours",
    "ours / argmax",
    "GB/s (of reading)",
    "extra memory, ours / vLLM / PyTorch",
)
BLOCK_HEAD = ("case", "V", "B", "accepted", "token rule, ms", "block rule, ms", "block / token")
SEEDED_HEAD = (
    *("case", "V", "B", "token rule, ms", "seeded, ms", "seeded / token"),
    *("vLLM, ms", "vLLM / seeded"),
)


def markdown(record: Mapping[str, Any]) -> str:
    """Return the tables and the aims of a record."""
    judged = record["judged"]
    parts = []
    for rule, (head, cells) in TABLES.items():
        rows = [row for row in record["results"] if KINDS[row["kind"]].rule == rule]
        if rows:
            parts.append(_table(head, (cells(row, judged) for row in rows)))
    parts.append("\n".join(f"- {line}" for line in aim_lines(record)))
    return "\n\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterator[list[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _title(row: Row) -> str:
    mixed = ", mixed acceptance" if row["acceptance"] == "mixed" else ""
    return KINDS[row["kind"]].title + mixed


def _token_cells(row: Row, judged: str) -> list[str]:
    ratios = row["ratios"].get(judged, {})
    bandwidth = (row["bandwidth"] or {}).get(judged)
    share = NONE
    if bandwidth:
        part = bandwidth["share_of_read"]["median"]
        share = f"{bandwidth['gb_per_s']['median']:.1f} ({part:.0%})"
    memory = (_bytes(row["memory"].get(name)) for name in (judged, "vllm", "torch"))
    return [
        _title(row),
        f"{row['vocab']:,}",
        str(row["batch"]),
        _ms(row, judged),
        _ms(row, "vllm"),
        _ratio(ratios.get("vllm")),
        _ms(row, "torch"),
        _ratio(ratios.get("torch")),
        _ratio(ratios.get("argmax")),
        share,
        " / ".join(memory),
    ]


def _block_cells(row: Row, judged: str) -> list[str]:
    return [
        KINDS[row["kind"]].title,
        f"{row['vocab']:,}",
        str(row["batch"]),
        row["acceptance"],
        _ms(row, judged + BY_TOKEN_RULE),
        _ms(row, judged),
        _ratio(row["ratios"].get(judged, {}).get("token rule")),
    ]


def _seeded_cells(row: Row, judged: str) -> list[str]:
    ratios = row["ratios"].get(judged, {})
    return [
        _title(row),
        f"{row['vocab']:,}",
        str(row["batch"]),
        _ms(row, judged + BY_TOKEN_RULE),
        _ms(row, judged),
        _ratio(ratios.get("token rule")),
        _ms(row, "vllm"),
        _ratio(ratios.get("vllm")),
    ]


# Heads and cells of a table for each rule.
TABLES: Mapping[str, tuple[tuple[str, ...], Callable[[Row, str], list[str]]]] = {
    "token": (HEAD, _token_cells),
    "block": (BLOCK_HEAD, _block_cells),
    "seeded": (SEEDED_HEAD, _seeded_cells),
}


def _ms(row: Row, name: str) -> str:
    figure = row["milliseconds"].get(name)
    return NONE if figure is None else f"{figure['median']:.3g}"


def _ratio(figure: Mapping[str, float] | None) -> str:
    return NONE if figure is None else str(Summary(**figure))


def _bytes(memory: Mapping[str, Any] | None) -> str:
    if memory is None:
        return NONE
    outside = memory.get("outside_pytorch_bytes_per_thread_at_most")
    size = memory["peak_bytes"]
    for unit, one in (("MB", 1e6), ("kB", 1e3), ("B", 1)):
        if size >= one:
            text = f"{size / one:.3g} {unit}"
            break
    else:
        text = "0"
    return f"{text} + < {outside >> 10} KiB a thread" if outside else text


def draw(record: Mapping[str, Any], path: Path) -> str:
    """Draw the times of all cases by peer to ``path``; return a line that says what was done."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return NO_MATPLOTLIB
    rows = record["results"]
    figure = Figure(figsize=(10, 2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for name in dict.fromkeys(name for row in rows for name in row["milliseconds"]):
        _draw_peer(axes, rows, name)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(f"milliseconds a call, {record['plan']['dtype']}, {record['device']['name']}")
    figure.suptitle("Verification: the time of a call")
    figure.legend(loc="outside lower center", ncols=5, fontsize="small")
    return save(figure, path)


def _label(row: Row) -> str:
    return f"{_title(row)}, V={row['vocab']} B={row['batch']}"


def _draw_peer(axes: Any, rows: list[Row], name: str) -> None:
    """Draw one peer's medians, and their ranges as bars."""
    spots = {y: row["milliseconds"].get(name) for y, row in enumerate(rows)}
    spots = {y: figure for y, figure in spots.items() if figure}
    middle = [figure["median"] for figure in spots.values()]
    below = [figure["median"] - figure["low"] for figure in spots.values()]
    above = [figure["high"] - figure["median"] for figure in spots.values()]
    axes.errorbar(middle, list(spots), xerr=[below, above], fmt="o", markersize=4, label=name)
