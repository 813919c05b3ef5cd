"""The page's numbers are the metrics', those of all engines added up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

import vllm_ascend_spec.page
from vllm_ascend_spec.control.goodput import PAYS, PROBE, UNKNOWN
from vllm_ascend_spec.control.told import COSTLY, FIXED, REJECTED, SCHEDULED
from vllm_ascend_spec.graphs.step import REASONS
from vllm_ascend_spec.page.data import FIGURES, figures

PAGE = (Path(vllm_ascend_spec.page.__file__).parent / "spec.html").read_text(encoding="utf-8")
LANGUAGES = ("en", "zh")


def words(language: str) -> str:
    """Return the part of the page's table of words that is a language's."""
    table = PAGE[: PAGE.index("\n};")]
    return re.split(r"\n  (?:en|zh): \{", table)[1 + LANGUAGES.index(language)]


def test_nothing_is_known_before_a_step() -> None:
    found = figures([])
    assert found.keys() == FIGURES.keys()
    assert found["tokens"] == 0
    assert found["length_steps"] == []
    json.dumps(found)


def test_engines_are_added_up_and_labels_told_apart() -> None:
    registry = CollectorRegistry()
    steps = Counter(
        "vllm:spec_decode_draft_length_steps", "", ["engine", "k", "reason"], registry=registry
    )
    steps.labels("0", "3", "fixed").inc(2)
    steps.labels("1", "3", "fixed").inc(3)
    steps.labels("1", "0", "does not pay").inc(4)
    low = Gauge("vllm:spec_decode_acceptance_low", "", ["engine"], registry=registry)
    low.labels("0").set(0)
    low.labels("1").set(1)
    Counter("vllm:generation_tokens", "", ["engine", "model_name"], registry=registry).labels(
        "0", "m"
    ).inc(7)
    found = figures(registry.collect())
    assert found["length_steps"] == [
        {"k": "0", "reason": "does not pay", "value": 4},
        {"k": "3", "reason": "fixed", "value": 5},
    ]
    assert (found["low"], found["tokens"]) == (1, 7)


def test_the_page_names_figures_that_there_are() -> None:
    found = re.findall(r"(?:recent|change)\((?:[\w. ]+, [\w |.]+, )?\"(\w+)\"\)", PAGE)
    found += re.findall(r"figures\.(\w+)", PAGE)
    assert len(found) > 10
    assert set(found) <= FIGURES.keys()


def test_the_page_asks_nobody_else() -> None:
    addresses = re.findall(r"https?://[^\"'`\s)]+", PAGE)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}, "a name space is all there may be"
    assert "innerHTML" not in PAGE, "what a server says is text, never markup"
    assert len(PAGE) < 40_000


def test_both_languages_have_the_same_words() -> None:
    english, chinese = (
        set(re.findall(r"(?:^|[,{]) *(\w+): (?:\"|\{)", words(name), re.MULTILINE))
        for name in LANGUAGES
    )
    # Reasons are in English in the metrics already, and stand in quotes.
    assert english == chinese
    used = set(re.findall(r"word\(\"(\w+)\"\)", PAGE)) | set(re.findall(r"data-t=\"(\w+)\"", PAGE))
    assert used <= english


@pytest.mark.parametrize(
    "reason", [*REASONS, PAYS, PROBE, UNKNOWN, COSTLY, FIXED, REJECTED, SCHEDULED]
)
def test_each_reason_has_its_chinese(reason: str) -> None:
    assert f'"{reason}": "' in words("zh")
