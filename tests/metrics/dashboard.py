"""The dashboards of ``examples/grafana/``, and what their queries ask for."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import promql_parser

FOLDER = Path(__file__).parents[2] / "examples" / "grafana"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
# Prometheus itself gives every sample these.
OF_PROMETHEUS = frozenset({"instance", "job"})
# What Grafana puts in, as it were with everything chosen.
CHOSEN = {"$__rate_interval": "1m", "$instance": ".*", "$engine": ".*"}


@cache
def make() -> ModuleType:
    """Return the script that writes the dashboards; it is in no package."""
    spec = importlib.util.spec_from_file_location("make_dashboards", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> dict[str, Any]:
    """Return a dashboard."""
    return json.loads(path.read_text(encoding="utf-8"))


def filled(expr: str, interval: str = "1m") -> str:
    """Return a query as Grafana sends it."""
    for name, value in {**CHOSEN, "$__rate_interval": interval}.items():
        expr = expr.replace(name, value)
    return expr


@dataclass(frozen=True)
class Asked:
    """One metric that a query asks for.

    Attributes:
        name: of its samples.
        labels: that it has to have.
    """

    name: str
    labels: frozenset[str]


def asked(expr: str) -> list[Asked]:
    """Return every metric of a query, with the labels that it is chosen and grouped by."""
    return list(_asked(promql_parser.parse(filled(expr)), frozenset()))


def _asked(node: Any, grouped: frozenset[str]) -> Iterator[Asked]:
    if isinstance(node, promql_parser.VectorSelector):
        yield Asked(node.name, grouped | {m.name for m in node.matchers.matchers})
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from _asked(node.vector_selector, grouped)
    elif isinstance(node, promql_parser.AggregateExpr):
        by = frozenset(node.modifier.labels) if node.modifier is not None else frozenset()
        yield from _asked(node.expr, grouped | by)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from _asked(node.lhs, grouped)
        yield from _asked(node.rhs, grouped)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from _asked(argument, grouped)
    else:
        assert isinstance(node, promql_parser.NumberLiteral), type(node)


def queries(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Return every query of a dashboard's panels, with what its answers are called."""
    return [
        (target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


def variables(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the metric and the label that each choice at the top is made of."""
    found = (
        re.fullmatch(r"label_values\((.+), (\w+)\)", variable.get("definition", ""))
        for variable in dashboard["templating"]["list"]
    )
    return [(match[1], match[2]) for match in found if match is not None]
