"""The page's numbers are the metrics', those of all engines added up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

import vllm_ascend_spec.page
from vllm_ascend_spec.control.adaptive_k import PAYS, PROBE, UNKNOWN
from vllm_ascend_spec.page.data import FIGURES, figures
from vllm_ascend_spec.step_report import (
    COSTLY,
    FIXED,
    NO_GRAPH_REASONS,
    PAST,
    REJECTED,
    SCHEDULED,
)

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


@pytest.mark.parametrize(
    ("key", "is_refused"),
    [("sk-Key_1 ~", False), ("\u00fcber", False), ("\uff4b\uff45\uff59", True), ("密钥", True)],
)
def test_a_key_that_no_header_can_hold_is_not_kept(key: str, is_refused: bool) -> None:
    """For with it ``fetch`` throws, as if the server did not answer."""
    submit = PAGE[PAGE.index('addEventListener("submit"') :]
    test = re.search(r"if \(/(.+)/\.test\(key\)\) return notice\(\"wrongKey\"\);", submit)
    assert test is not None
    assert test.start() < submit.index("stored(sessionStorage, KEY, key)")
    assert bool(re.search(test[1], key)) == is_refused


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
    "reason",
    [*NO_GRAPH_REASONS, PAYS, PROBE, UNKNOWN, COSTLY, FIXED, PAST, REJECTED, SCHEDULED],
)
def test_each_reason_has_its_chinese(reason: str) -> None:
    assert f'"{reason}": "' in words("zh")
