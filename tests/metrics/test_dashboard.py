"""The dashboards are whole, in both languages, and ask for metrics that are documented."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.metrics.dashboard import (
    DASHBOARDS,
    FOLDER,
    Asked,
    asked,
    make,
    queries,
    read,
    variables,
)
from vllm_ascend_spec.page.data import FIGURES

DOCS = FOLDER.parents[1] / "docs"
PAGES = [DOCS / name for name in ("metrics.md", "metrics.zh.md")]
METRIC = re.compile(r"vllm:[a-z_]+")
BLOCK = re.compile(r"```promql\n(.*?)```", re.DOTALL)


def documented(page: Path) -> set[str]:
    """Return the names in the first column of the tables of a page and of the reference."""
    reference = page.with_name(page.name.replace("metrics", "reference"))
    lines = (page.read_text() + reference.read_text()).splitlines()
    rows = (line for line in lines if line.startswith("| `vllm:"))
    return {name_of(METRIC.findall(row)[0]) for row in rows}


def name_of(sample: str) -> str:
    """Return the name of the metric that a sample is of."""
    return re.sub(r"_(total|bucket|sum|count)$", "", sample)


def test_they_are_what_the_script_writes() -> None:
    files = make().FILES
    assert sorted(files) == DASHBOARDS
    assert [path.read_text() for path in files] == [make().text(0), make().text(1)]


def test_both_ask_the_same_and_are_in_their_language() -> None:
    chinese, english = (read(path) for path in DASHBOARDS)
    assert "zh" in DASHBOARDS[0].name
    assert queries(chinese) == queries(english)
    for panel, other in zip(chinese["panels"], english["panels"], strict=True):
        for text in ("title", "description"):
            assert re.search(r"[\u4e00-\u9fff]", panel[text])
            assert not re.search(r"[\u4e00-\u9fff]", other[text])
    assert chinese["uid"] != english["uid"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_fill_the_grid(path: Path) -> None:
    panels = read(path)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    taken = [
        (place["x"] + dx, place["y"] + dy)
        for place in (panel["gridPos"] for panel in panels)
        for dx, dy in product(range(place["w"]), range(place["h"]))
    ]
    height = max(y for _, y in taken) + 1
    assert sorted(taken) == sorted(product(range(24), range(height)))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_the_data_source_is_chosen_at_the_top(path: Path) -> None:
    dashboard = read(path)
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["datasource", "instance", "engine"]
    places = [*dashboard["panels"], *(t for p in dashboard["panels"] for t in p["targets"])]
    assert {place["datasource"]["uid"] for place in places} == {"${datasource}"}
    assert "__inputs" not in dashboard


@pytest.mark.parametrize("expr", [expr for expr, _ in queries(read(DASHBOARDS[0]))])
def test_a_query_asks_for_what_is_documented(expr: str) -> None:
    names = {name_of(found.name) for found in asked(expr)}
    assert names
    for page in PAGES:
        assert names <= documented(page)


def test_a_legend_names_labels_that_its_query_keeps() -> None:
    for expr, legend in queries(read(DASHBOARDS[0])):
        kept = set.intersection(*({*found.labels} for found in asked(expr)))
        labels = set(re.findall(r"\{\{(\w+)\}\}", legend))
        if "by (" in expr:
            assert labels <= kept


def test_the_choices_are_made_of_a_documented_metric() -> None:
    for name, label in variables(read(DASHBOARDS[0])):
        assert name_of(name) in documented(PAGES[0])
        assert label in ("instance", "engine")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_the_page_shows_and_the_examples_ask_is_documented(page: Path) -> None:
    names = {name_of(figure.sample) for figure in FIGURES.values()}
    examples = BLOCK.findall(page.read_text())
    assert len(examples) > 3
    for block in examples:
        for expr in filter(None, re.split(r"\n(?=\S)", block.strip())):
            names |= {name_of(found.name) for found in asked(expr)}
    assert names <= documented(page)


def test_what_a_query_asks_for_is_found() -> None:
    expr = 'sum by (k) (rate(vllm:a_total{engine=~"$engine"}[$__rate_interval])) / max(vllm:b) > 1'
    assert asked(expr) == [
        Asked("vllm:a_total", frozenset({"k", "engine"})),
        Asked("vllm:b", frozenset()),
    ]
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        asked("sum by (k) (rate(vllm:a_total")


def test_provisioning_is_as_grafana_documents_it() -> None:
    sources = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yaml").read_text())
    assert sources["apiVersion"] == 1
    assert [source["type"] for source in sources["datasources"]] == ["prometheus"]
    providers = yaml.safe_load((FOLDER / "provisioning/dashboards/speculation.yaml").read_text())
    assert providers["apiVersion"] == 1
    (provider,) = providers["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"].endswith(f"/{DASHBOARDS[0].parent.name}")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: prometheus is not here")
def test_prometheus_takes_its_configuration() -> None:
    command = ["promtool", "check", "config", str(FOLDER / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
