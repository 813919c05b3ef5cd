"""Make the report of ``bench sweep`` from its record: one self-contained HTML page."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from vllm_ascend_spec.bench.svg import Line, colour_of, line_chart
from vllm_ascend_spec.bench.sweep_figures import NONE
from vllm_ascend_spec.metrics.rule import note_on_rule

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5em auto; max-width: 84em; padding: 0 1em;
  color: #222; background: #fff }
h2 { margin-top: 1.8em; border-bottom: 1px solid #bbb }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0 }
th, td { padding: .15em .6em; text-align: right; border-bottom: 1px solid #ddd }
th.name, td.name { text-align: left }
tr.best td { background: #e7f4ea; font-weight: 600 }
tr.none td { color: #666 }
tr.load th { text-align: left; background: #f2f2f2 }
code, pre { font: 13px/1.4 ui-monospace, monospace; background: #f5f5f5 }
pre { padding: .5em .8em; white-space: pre-wrap; overflow-wrap: anywhere }
svg { font: 11px system-ui, sans-serif; margin-right: 1em }
svg .grid { stroke: #ddd }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em }
.wide { overflow-x: auto }
.wide td { white-space: nowrap }
"""
GREY = "#555555"
COLUMNS = (
    "configuration",
    "tokens/s",
    "ratio to none (lowest to highest)",
    "acceptance length",
    "tokens/step",
    "accepted by position",
    "first token, ms, p50 / p99",
    "between outputs, ms, p50 / p99",
    "ms/token",
)
# Explains the columns, below the title.
LEGEND = (
    "Clients each wait for an answer before they ask again. Tokens/s are of all clients, the "
    "median over rounds. The ratio to no speculation is formed round by round, within a group of "
    "engines that took turns; lowest and highest are of rounds. The acceptance length counts steps "
    "that had drafts, the last token included; tokens/step counts all steps of a request but its "
    "first. A step's tokens come out together: the waits between outputs are those that a reader "
    "of the stream sees, ms/token is their mean over the tokens. Answers do not end before their "
    "last token."
)


def page(record: Mapping[str, Any]) -> str:
    """Return the report as HTML."""
    plan = record["plan"]
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        "<title>Speculation: methods and K compared</title>",
        f"<style>{STYLE}</style></head><body>",
        "<h1>Speculation: methods and K compared</h1>",
        _where(record),
        f"<p>{LEGEND}</p><p>{escape(plan['note'])}</p>",
        "<h2>The best of each load</h2>",
        _best(record),
        "<h2>To copy</h2>",
        _to_copy(record),
    ]
    for temperature in plan["temperatures"]:
        for category in plan["prompts"]:
            rows = [
                row
                for row in record["results"]
                if (row["category"], row["temperature"]) == (category, temperature)
            ]
            parts.append(f"<h2>{escape(category)}, T = {temperature:g}</h2>")
            parts.append(_charts(record, rows))
            parts.append(_table(record, rows, (category, temperature)))
    return "\n".join([*parts, "</body></html>", ""])


def _where(record: Mapping[str, Any]) -> str:
    """Return a table of what was measured, and on which machine."""
    plan, source = record["plan"], record["provenance"]
    machine = source["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in source["versions"].items())
    prompts = ", ".join(f"{name} {count}" for name, count in plan["prompts"].items())
    facts = {
        "model": plan["model"],
        "on": f"{plan['device']}; {machine['cpu']}, {machine['cpus']} CPUs, "
        f"load of the last 1, 5 and 15 minutes at the start: {machine['load']}",
        "prompts": f"{prompts}; {plan['max_tokens']} tokens each",
        "rounds": f"{plan['rounds']}, {'compiled' if plan['compiled'] else 'eager'}",
        "engine": json.dumps(plan["arguments"]),
        "versions": versions,
        "revision": source["git"] or "not of a checkout",
        "time": source["time"],
        "command": shlex.join(source["argv"]),
    }
    rows = "".join(
        f'<tr><th class="name">{name}</th><td class="name">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def _best(record: Mapping[str, Any]) -> str:
    rows = []
    for row in record["best"]:
        ratio = f"{row['to_none']:.2f}" if row["configuration"] != NONE else "1"
        sure = "yes" if row["in_every_round"] else "no"
        rows.append(
            f"<tr><td>{row['temperature']:g}</td><td>{row['concurrency']}</td>"
            f'<td class="name">{escape(row["category"])}</td>'
            f'<td class="name">{escape(row["configuration"])}</td><td>{ratio}</td>'
            f"<td>{sure if row['configuration'] != NONE else ''}</td></tr>"
        )
    rounds = record["plan"]["rounds"]
    rounds_told = "the one round" if rounds == 1 else f"all {rounds} rounds"
    head = (
        '<tr><th>T</th><th>clients</th><th class="name">category</th>'
        '<th class="name">configuration</th><th>ratio to none</th>'
        f"<th>faster in {rounds_told}</th></tr>"
    )
    return f"<table>{head}{''.join(rows)}</table>"


def _to_copy(record: Mapping[str, Any]) -> str:
    """Return the options of the best configurations, ready to copy."""
    best = [row["configuration"] for row in record["best"]]
    parts = []
    for name, one in record["configurations"].items():
        if name in best:
            spec = json.dumps(one["speculative_config"], ensure_ascii=False)
            times = best.count(name)
            rule = escape(note_on_rule(one["rule"]))
            parts.append(f"<p>{escape(name)}{rule}, the best of {times} of {len(best)} rows:</p>")
            parts.append(f"<pre>--speculative-config {escape(shlex.quote(spec))}</pre>")
    if "…" in "".join(parts):
        parts.append("<p>… stands for what a record does not show, such as a folder.</p>")
    return "".join(parts) or "<p>No load was faster with speculation than without.</p>"


def _colours(record: Mapping[str, Any]) -> dict[str, str]:
    methods = dict.fromkeys(one["method"] for one in record["configurations"].values())
    return {method: colour_of(place) for place, method in enumerate(methods)}


def _charts(record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return charts of speed and ratio by clients: each method's best K, and a band over all K."""
    clients = record["plan"]["concurrency"]
    colours = _colours(record)
    charts = []
    for title, key in (("tokens/s", "tokens_per_s"), ("ratio to no speculation", "to_none")):
        lines = [_line_of_none(rows, clients, key)]
        lines += [
            _line_of(method, colour, [_of(record, rows, method, n) for n in clients], key)
            for method, colour in colours.items()
        ]
        named = f"{title}, best K of each method"
        charts.append(line_chart(named, "clients", [str(n) for n in clients], lines))
    legend = "".join(
        f'<span class="key" style="background:{colour}"></span>{escape(name)}'
        for name, colour in ({NONE: GREY} | colours).items()
    )
    return f"<p>{legend}</p>{''.join(charts)}"


def _of(
    record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], method: str, clients: int
) -> list[Mapping[str, Any]]:
    """Return a method's rows for a number of clients, one row per K."""
    methods = {name: one["method"] for name, one in record["configurations"].items()}
    return [
        row
        for row in rows
        if row["concurrency"] == clients and methods.get(row["configuration"]) == method
    ]


def _line_of(
    method: str, colour: str, rows: Sequence[Sequence[Mapping[str, Any]]], key: str
) -> Line:
    """Return the line of a method.

    Args:
        method: its name.
        colour: colour of the line.
        rows: for each number of clients, the rows of each K.
        key: name of the figure.
    """
    best = [max(at, key=lambda row: row[key]["median"]) for at in rows]
    values = [[row[key]["median"] for row in at] for at in rows]
    return Line(
        method,
        colour,
        [max(at) for at in values],
        [f"{row['configuration']}: {row[key]['median']:g}" for row in best],
        [(min(at), max(at)) for at in values],
    )


def _line_of_none(rows: Sequence[Mapping[str, Any]], clients: Sequence[int], key: str) -> Line:
    """Return the line of no speculation, the median over the groups."""
    none = [row for row in rows if row["configuration"] == NONE]
    values = [
        statistics.median([row[key]["median"] for row in none if row["concurrency"] == n])
        for n in clients
    ]
    return Line(NONE, GREY, values, [f"{NONE}: {found:g}" for found in values])


def _table(
    record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], load: tuple[str, float]
) -> str:
    """Return a table of all configurations, grouped by number of clients."""
    names = (f"<th{' class=name' if n == 0 else ''}>{c}</th>" for n, c in enumerate(COLUMNS))
    parts = [f"<tr>{''.join(names)}</tr>"]
    best = {
        row["concurrency"]: row["configuration"]
        for row in record["best"]
        if (row["category"], row["temperature"]) == load
    }
    for clients in record["plan"]["concurrency"]:
        word = "client" if clients == 1 else "clients"
        parts.append(f'<tr class="load"><th colspan="{len(COLUMNS)}">{clients} {word}</th></tr>')
        parts += [
            _row(record, row, is_best=row["configuration"] == best[clients])
            for row in rows
            if row["concurrency"] == clients
        ]
    return f'<div class="wide"><table>{"".join(parts)}</table></div>'


def _row(record: Mapping[str, Any], row: Mapping[str, Any], *, is_best: bool) -> str:
    name, ratio = row["configuration"], row["to_none"]
    is_none = name == NONE
    rule = "" if is_none else note_on_rule(record["configurations"][name]["rule"])
    several = len(record["plan"]["groups"]) > 1
    cells = (
        f"{row['tokens_per_s']['median']:.1f}",
        "" if is_none else f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
        _number(row["acceptance_length"]),
        _number(row["tokens_per_step"]),
        " ".join(f"{share:.0%}" for share in row["per_position"]),
        _times(row["first_token_ms"]),
        _times(row["inter_token_ms"]),
        _number(row["time_per_token_ms"]),
    )
    shown = name + rule + (f", group {row['group']}" if is_none and several else "")
    kind = "best" if is_best else "none" if is_none else ""
    body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr class="{kind}"><td class="name">{escape(shown)}</td>{body}</tr>'


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _times(value: Mapping[str, float] | None) -> str:
    return "" if value is None else f"{value['p50']:.1f} / {value['p99']:.1f}"
