"""What the documents say of acceptance is the zoo's record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.zoo import report

RESULTS = json.loads(report.RECORD.read_text())["results"]


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.name)
def test_the_table_is_that_of_the_record(page: Path) -> None:
    text = page.read_text()
    assert text == report.with_table(text, report.table(RESULTS)), "examples/zoo/report.py"


def test_the_picture_shows_every_way_to_draft() -> None:
    drawn = report.PICTURE.read_text()
    assert [name for name in RESULTS if f"<!-- {name} -->" not in drawn] == []
