"""The tables of ``docs/structure.md``, which ``tests/test_structure.py`` enforces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.imports import PACKAGE, ROOT

PAGE = ROOT / "docs" / "structure.md"
CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Part:
    """A row of the table of folders.

    Attributes:
        name: the folder, or the file without its ending.
        imports: the parts that it may import.
        names: the parts whose modules it gives by name, to be imported by somebody later.
    """

    name: str
    imports: frozenset[str]
    names: frozenset[str]


def section(text: str, title: str) -> list[str]:
    """Return the lines under a heading, up to the next one."""
    lines = text.splitlines()
    start = lines.index(f"## {title}") + 1
    end = next((i for i in range(start, len(lines)) if lines[i].startswith("## ")), len(lines))
    return lines[start:end]


def parts_in(text: str) -> dict[str, Part]:
    """Return the rows of the table of folders: part, job, may import."""
    found: dict[str, Part] = {}
    for line in section(text, "Folders of the package"):
        if not line.startswith("| `"):
            continue
        first, _, allowed = (cell.strip() for cell in line.strip("|").split(" | "))
        imports, _, names = allowed.partition("by name")
        for code in CODE.findall(first):
            name = code.removesuffix("/").removesuffix(".py")
            assert name not in found, f"{name} has two rows"
            found[name] = Part(
                name, frozenset(CODE.findall(imports)), frozenset(CODE.findall(names))
            )
    return found


def files_in(text: str, title: str) -> dict[str, list[Path]]:
    """Return the patterns that the items of a list begin with, and the files that each matches."""
    items = re.findall(r"^- (`.*?):", "\n".join(section(text, title)), re.MULTILINE | re.DOTALL)
    patterns = [pattern for item in items for pattern in CODE.findall(item)]
    return {pattern: sorted(PACKAGE.glob(pattern)) for pattern in patterns}


@cache
def parts_there() -> dict[str, list[Path]]:
    """Return the folders and files of the package, and the Python files of each."""
    folders = {
        path.parent.name: sorted(path.parent.rglob("*.py"))
        for path in PACKAGE.glob("*/__init__.py")
    }
    files = {path.stem: [path] for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    return {**folders, **files}
