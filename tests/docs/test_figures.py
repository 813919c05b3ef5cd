"""Tables and drawings are those of the records and of the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import documents
from tests.docs.figures import metrics, options
from tests.docs.figures.drawings import DRAWINGS, FOLDER, svg
from tests.docs.figures.fill import CELLS, TABLE, TABLES, filled

ROWS = (options.of_speculation, options.of_section, metrics.rows)
PAGES = [page for page in documents() if TABLE.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_is_up_to_date(page: Path) -> None:
    now = filled(page.read_text(), page.name)
    assert page.read_text() == now, "python -m tests.docs.figures"


def test_every_table_is_somewhere() -> None:
    assert {table[2] for page in PAGES for table in TABLE.finditer(page.read_text())} == set(TABLES)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_that_of_its_record(name: str) -> None:
    assert (FOLDER / f"{name}.svg").read_text() == svg(DRAWINGS[name]()), (
        "python -m tests.docs.figures"
    )


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_on_a_page_in_both_languages(name: str) -> None:
    shown = [page.name for page in documents() if f"](drawings/{name}.svg)" in page.read_text()]
    assert len(shown) == 2
    assert shown[1].replace(".zh.md", ".md") == shown[0]


def test_another_figure_is_noticed() -> None:
    page = next(page for page in PAGES if page.name == "draft_length.md")
    text = page.read_text()
    wrong = text.replace("| 1 client, T=0 | ", "| 1 client, T=0 | 9")
    assert wrong != text
    assert filled(wrong, page.name) == text


@pytest.mark.parametrize("rows", ROWS)
def test_help_has_a_chinese_text(rows: Callable[[], Iterator[str]]) -> None:
    missing = [row for row in rows() if not any(cell in row for cell in CELLS)]
    assert missing == []
    made = "".join(row for found in ROWS for row in found())
    assert [cell for cell in CELLS if cell not in made] == []
