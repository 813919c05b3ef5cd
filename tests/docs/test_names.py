"""What the documents link to is there, and so are the files and folders that they name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.docs.blocks import ROOT, documents

# It says what was, under the names of then.
HISTORY = ROOT / "CHANGELOG.md"
DOCUMENTS = [path for path in documents() if path != HISTORY]
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|cpp|h|md|json|toml|txt|png)")
FOLDER = re.compile(r"[\w.-]+(?:/[\w.-]+)*/")
# Names of other projects' files, and of files that are not kept in the repository.
ELSEWHERE = {
    "config.json": "a checkpoint's",
    "kernel_operator.h": "CANN's, and the emulator's",
    "ascendc.cmake": "CANN's",
    "verify.png": "written by a benchmark",
    "bigram_drafts/__init__.py": "of the package that docs/add_method.md writes",
    "bigram_drafts/drafter.py": "of the package that docs/add_method.md writes",
    "box_device/__init__.py": "of the package that docs/add_device.md writes",
    "box_device/platform.py": "of the package that docs/add_device.md writes",
}
# Folders that commands make.
MADE = (".venv/", ".venv-npu/", "bench-results/", "build/", ".ci/", "my-head/")


def inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from inline(token.children or [])


@cache
def tracked() -> frozenset[str]:
    """Return every file and folder of the repository, folders with a slash at their end."""
    listed = subprocess.run(
        ("git", "ls-files", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    folders = {f"{parent}/" for name in listed for parent in PurePosixPath(name).parents}
    return frozenset({*listed, *folders})


def is_there(name: str, document: Path) -> bool:
    """Whether a name is a file or folder, seen from the repository, the package or the page.

    A name may leave out the folders before it if it is the end of one path at least.
    """
    if name in ELSEWHERE or name.startswith(MADE):
        return True
    near = document.parent / name
    if near.is_relative_to(ROOT) and near.exists():
        return True
    return any(path == name or path.endswith(f"/{name}") for path in tracked())


def names_in(text: str) -> list[str]:
    """Return the names of files and folders among a page's inline code."""
    codes = [t.content for t in inline(MarkdownIt().parse(text)) if t.type == "code_inline"]
    return [code for code in codes if FILE.fullmatch(code) or FOLDER.fullmatch(code)]


def links_in(text: str) -> list[str]:
    found = [t.attrGet("href") for t in inline(MarkdownIt().parse(text)) if t.type == "link_open"]
    return [str(link) for link in found if not str(link).startswith(("http://", "https://"))]


def headings_in(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    tokens = MarkdownIt().parse(text)
    titles = [b.content for a, b in pairwise(tokens) if a.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(link: str, document: Path) -> bool:
    path, _, anchor = unquote(link).partition("#")
    target = document.parent / path if path else document
    return not target.exists() or bool(anchor and anchor not in headings_in(target.read_text()))


def title(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", documents(), ids=title)
def test_links_lead_somewhere(document: Path) -> None:
    assert [link for link in links_in(document.read_text()) if broken(link, document)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_files_and_folders_are_there(document: Path) -> None:
    assert [n for n in names_in(document.read_text()) if not is_there(n, document)] == []


def test_what_is_not_there_is_found() -> None:
    here = ROOT / "docs" / "x.md"
    text = "`config/nothing.py` `ops/` [a](structure.md#light-files) [b](no.md) [c](#no) `a b`"
    assert [name for name in names_in(text) if not is_there(name, here)] == ["config/nothing.py"]
    links = ["structure.md#light-files", "no.md", "#no"]
    assert links_in(text) == links
    assert broken("no.md", here)
    assert broken("README.md#no-such-heading", here)
    assert not broken("structure.md#light-files", here)


@pytest.mark.parametrize("ending", [".md", ".zh.md"])
def test_all_pages_are_in_the_index(ending: str) -> None:
    folder = ROOT / "docs"
    index = folder / f"README{ending}"
    pages = {page.name for page in folder.glob(f"*{ending}")} - {index.name}
    if ending == ".md":
        pages = {page for page in pages if not page.endswith(".zh.md")}
    assert len(pages) > 3
    assert pages <= set(links_in(index.read_text()))
