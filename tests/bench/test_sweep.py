"""``bench sweep``: what is compared, what the figures are made of, the report, and a small run."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import SPECS, TARGET, ZOO
from vllm_ascend_spec.bench import sweep_page
from vllm_ascend_spec.bench.closed_loop import Run
from vllm_ascend_spec.bench.svg import Line, line_chart, ticks
from vllm_ascend_spec.bench.sweep import format_table
from vllm_ascend_spec.bench.sweep_configurations import cross, grouped
from vllm_ascend_spec.bench.sweep_figures import EVERY, NONE, best_of, figures, percentile
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts

EAGLE: dict[str, Any] = {"method": "eagle", "model": "examples/zoo/eagle"}
NGRAM: dict[str, Any] = {"method": "ngram", "prompt_lookup_max": 4}


# What is compared.


def test_every_method_is_crossed_with_every_length() -> None:
    found = cross([EAGLE, NGRAM], [1, 3])
    assert [one.name for one in found] == ["eagle K=1", "eagle K=3", "ngram K=1", "ngram K=3"]
    assert [one.method for one in found] == ["eagle", "eagle", "ngram", "ngram"]
    assert found[3].spec == {**NGRAM, "num_speculative_tokens": 3}


def test_names_have_the_options_in_which_configs_of_a_method_differ() -> None:
    drawn = {**EAGLE, "draft_sample_method": "probabilistic"}
    other = {**EAGLE, "model": "/home/somebody/heads/large"}
    names = [one.method for one in cross([EAGLE, drawn, other, NGRAM], [2])]
    assert names == [
        "eagle (model=eagle)",
        "eagle (draft_sample_method=probabilistic, model=eagle)",
        "eagle (model=large)",
        "ngram",
    ]


def test_two_that_differ_in_what_is_not_shown_are_told_apart() -> None:
    specs = [{**EAGLE, "revision": name} for name in ("a", "b")]
    first, second = (one.name for one in cross(specs, [2]))
    assert second == f"{first} #2"


@pytest.mark.parametrize(
    ("specs", "lengths", "words"),
    [
        ([EAGLE, EAGLE], [1], "is there twice"),
        ([{**EAGLE, "num_speculative_tokens": 2}], [1], "give one of the two"),
    ],
)
def test_what_cannot_be_compared(specs: Any, lengths: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cross(specs, lengths)


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (6, [6]), (7, [4, 3]), (13, [5, 5, 3])])
def test_groups_are_about_as_large(count: int, sizes: list[int]) -> None:
    found = grouped(cross([NGRAM], range(1, count + 1)), 6)
    assert [len(group) for group in found] == sizes


# What the figures are made of.


def make_run(tokens: int, seconds: float, accepted: int = 0) -> Run:
    drafted = AcceptanceCounts(10, 20, accepted, (accepted, 0)) if accepted else AcceptanceCounts()
    return Run(tokens, seconds, [], [0.5, 0.7], [(0.1, 2), (0.2, 4)], drafted)


def test_figures() -> None:
    found = figures(
        [make_run(100, 1.0, 5), make_run(100, 2.0, 5)], [make_run(50, 1.0), make_run(20, 1.0)]
    )
    assert found["tokens_per_s"] == {"median": 75.0, "low": 50.0, "high": 100.0}
    assert found["to_none"] == {"median": 2.25, "low": 2.0, "high": 2.5}
    assert (found["acceptance_length"], found["per_position"]) == (1.5, [0.5, 0.0])
    assert found["tokens_per_step"] == 3.0
    assert found["first_token_ms"] == {"p50": 500.0, "p99": 700.0}
    assert found["inter_token_ms"] == {"p50": 100.0, "p99": 200.0}
    assert found["time_per_token_ms"] == 50.0


def test_figures_without_drafts_or_later_steps() -> None:
    found = figures([Run(2, 1.0, [], [0.5])], [Run(2, 1.0, [], [0.5])])
    for name in ("acceptance_length", "tokens_per_step", "inter_token_ms", "time_per_token_ms"):
        assert found[name] is None


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1), (0.501, 51)]
)
def test_percentiles(share: float, value: int) -> None:
    assert percentile(range(100, 0, -1), share) == value
    assert percentile([7], share) == 7


def ratio(median: float, low: float = 1.1) -> dict[str, float]:
    return {"median": median, "low": low, "high": median}


def make_row(category: str, name: str, median: float, **others: Any) -> dict[str, Any]:
    row = {"category": category, "temperature": 0.0, "concurrency": 1, "group": 1}
    figures_ = figures([make_run(100, 1.0, 0 if name == NONE else 5)], [make_run(50, 1.0)])
    return {**row, "configuration": name, **figures_, "to_none": ratio(median), **others}


ROWS = [
    make_row("code", NONE, 1.0),
    make_row("code", "eagle K=1", 2.0),
    make_row("code", "ngram K=1", 1.5),
    make_row("edits", NONE, 1.0),
    make_row("edits", "eagle K=1", 0.9),
    make_row("edits", "ngram K=1", 1.4, to_none=ratio(1.4, 0.8)),
    make_row("code", NONE, 1.0, concurrency=8),
    make_row("code", "eagle K=1", 0.5, concurrency=8),
    make_row("code", "ngram K=1", 0.9, concurrency=8),
]


def test_the_best_of_each_load_and_of_all_categories() -> None:
    found = {(row["category"], row["concurrency"]): row for row in best_of(ROWS)}
    assert {where: row["configuration"] for where, row in found.items()} == {
        ("code", 1): "eagle K=1",
        ("edits", 1): "ngram K=1",
        (EVERY, 1): "ngram K=1",
        ("code", 8): NONE,
    }
    assert found[(EVERY, 1)]["to_none"] == pytest.approx((1.5 * 1.4) ** 0.5, abs=1e-4)
    assert found[("code", 1)]["in_every_round"] is True
    assert found[("edits", 1)]["in_every_round"] is False


# The report.

RECORD: dict[str, Any] = {
    "plan": {
        "model": "a/<model>",
        "device": "cpu",
        "prompts": {"code": 4, "edits": 4},
        "concurrency": [1],
        "temperatures": [0.0],
        "max_tokens": 8,
        "rounds": 1,
        "compiled": False,
        "arguments": {"dtype": "float32"},
        "groups": [["eagle K=1", "ngram K=1"]],
        "note": "Engines took turns.",
    },
    "provenance": {
        "argv": ["vllm-ascend-spec", "bench", "sweep"],
        "machine": {"cpu": "x", "cpus": 2, "load": [1.0, 1.0, 1.0]},
        "versions": {"vllm": "0.30.0"},
        "git": None,
        "time": "now",
    },
    "configurations": {
        "eagle K=1": {
            "method": "eagle",
            "drafts": 1,
            "rule": "synthetic",
            "speculative_config": {**EAGLE, "num_speculative_tokens": 1},
        },
        "ngram K=1": {
            "method": "ngram",
            "drafts": 1,
            "rule": "token",
            "speculative_config": {**NGRAM, "num_speculative_tokens": 1},
        },
    },
    "results": ROWS[:6],
    "best": best_of(ROWS[:6]),
}


class Page(html.parser.HTMLParser):
    """Collects what a page has, and whether each element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    # It is readable by itself: nothing is fetched, nothing runs.
    assert not re.search(r"https?:|src=|<link|<script|@import|url\(", text)
    return page


def test_the_report_says_it_all() -> None:
    page = check_page(sweep_page.page(RECORD))
    assert page.seen.count("svg") == 4
    for words in (
        "a/<model>",
        "code, T = 0",
        "edits, T = 0",
        "eagle K=1 (synthetic, not lossless)",
        "2.00 (1.10 to 2.00)",
        "50% 0%",
        "500.0 / 700.0",
        """--speculative-config '{"method": "ngram", "prompt_lookup_max": 4""",
        "Engines took turns.",
    ):
        assert words in page.text, words


@pytest.mark.parametrize(
    ("rounds", "words"), [(1, "faster in the one round"), (3, "faster in all 3 rounds")]
)
def test_the_report_says_how_many_rounds_there_were(rounds: int, words: str) -> None:
    record = {**RECORD, "plan": {**RECORD["plan"], "rounds": rounds}}
    text = check_page(sweep_page.page(record)).text
    assert words in text
    assert "every round" not in text


def test_ratios_are_called_ratios() -> None:
    """ "To none" alone might be a difference."""
    text = check_page(sweep_page.page(RECORD)).text
    assert text.count("to none") == text.count("ratio to none") > 0


def test_a_report_where_nothing_pays() -> None:
    rows = [row for row in ROWS if row["concurrency"] == 8]
    plan = {**RECORD["plan"], "prompts": {"code": 4}, "concurrency": [8]}
    record = {**RECORD, "plan": plan, "results": rows, "best": best_of(rows)}
    assert "No load was faster" in check_page(sweep_page.page(record)).text


def test_the_table_names_the_rule_and_the_best() -> None:
    lines = format_table(RECORD).splitlines()
    assert "(synthetic, not lossless)" in lines[2]
    assert lines[-1] == "best of 1 clients, all categories, T=0: ngram K=1, ratio to none 1.45"
    assert "ratio to none" in lines[0]


@pytest.mark.parametrize(
    ("highest", "marks"),
    [(0, [0, 1]), (1.8, [0, 0.5, 1, 1.5, 2]), (100, [0, 20, 40, 60, 80, 100])],
)
def test_ticks(highest: float, marks: list[float]) -> None:
    assert ticks(highest) == pytest.approx(marks)


def test_a_chart_keeps_its_points_inside() -> None:
    line = Line("a", "#000", [1.0, 3.0], ["<one>", "three"], [(0.5, 1.0), (2.0, 3.5)])
    text = line_chart("title", "clients", ["1", "8"], [line])
    assert "&lt;one&gt;" in text
    (points,) = re.findall(r'polyline points="([^"]+)"', text)
    (_, first), (_, second) = (map(float, point.split(",")) for point in points.split())
    assert 0 < second < first < 250


# A small run.


def test_a_small_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two groups, each with its own engine without speculation."""
    output, report = tmp_path / "new" / "record.json", tmp_path / "new" / "report.html"
    specs = [
        {key: value for key, value in SPECS[name].items() if key != "num_speculative_tokens"}
        for name in ("eagle", "suffix")
    ]
    arguments = ["bench", "sweep", "--model", TARGET, "--rounds", "2", "--concurrency", "1,2"]
    arguments += ["--num-speculative-tokens", "2", "--at-once", "1", "--temperatures", "0"]
    arguments += ["--max-tokens", "12", "--categories", "edits", "--num-prompts", "2"]
    arguments += ["--prompts", str(ZOO / "sweep_prompts.jsonl"), "--kv-cache-mib", "64"]
    for spec in specs:
        arguments += ["--speculative-config", json.dumps(spec)]
    assert main([*arguments, "--output", str(output), "--html", str(report)]) == 0

    record = json.loads(output.read_text())
    assert record["plan"]["groups"] == [["eagle K=2"], ["suffix K=2"]]
    names = [(row["group"], row["concurrency"], row["configuration"]) for row in record["results"]]
    assert names == [
        (group, clients, name)
        for group, method in ((1, "eagle K=2"), (2, "suffix K=2"))
        for clients in (1, 2)
        for name in (NONE, method)
    ]
    for row in record["results"]:
        is_none = row["configuration"] == NONE
        assert len(row["per_position"]) == (0 if is_none else 2), row
        assert is_none == (row["tokens_per_step"] == 1.0), row
        assert row["to_none"]["low"] > 0
    assert {one["rule"] for one in record["configurations"].values()} == {"token"}
    printed = capfd.readouterr()
    told = printed.out
    assert format_table(record) in told
    # In a pipe how far it is is not told.
    assert "round" not in printed.err
    best = {row["configuration"] for row in record["best"]} - {NONE}
    # A person can copy what a record hides.
    assert all(f"{name}: --speculative-config " in told for name in best)
    assert str(ZOO) not in output.read_text() + report.read_text()
    check_page(report.read_text())

    again = tmp_path / "again.html"
    assert main(["bench", "sweep", "--record", str(output), "--html", str(again)]) == 0
    assert again.read_text() == report.read_text()
