"""Where our texts say that something stands in vLLM or vllm-ascend.

A citation is the path of a file, from the package on, a colon and a symbol: a name at the top of
the file, or a class and one of its members with a dot between. The symbol may stand on the next
line; without one the file as a whole is meant. A line number is no citation: it is wrong after the
next release, and nobody can tell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("vllm", "vllm_ascend", "speculators")
_NEXT_LINE = r"(?:\n[ \t]*(?:#|//|\*)?[ \t]*)?"
CITATION = re.compile(
    rf"(?<![\w/.])((?:{'|'.join(PACKAGES)})/[\w/]+\.py)(?::{_NEXT_LINE}([A-Za-z_][\w.]*\w))?"
)
LINE_NUMBER = re.compile(rf"[\w/]+\.(?:py|cpp|h|cu):{_NEXT_LINE}\d+|\(:\d+[-)]")
# A path of a Python file with a folder in it.
PATH = re.compile(r"(?<![\w/.<{*-])(?:[\w.]+/)+\w+\.py\b")


@dataclass(frozen=True)
class Citation:
    """One citation.

    Attributes:
        where: file and line of ours.
        path: theirs, with the package.
        symbol: "" where the file as a whole is meant.
    """

    where: str
    path: str
    symbol: str


def citations_in(text: str, where: str) -> Iterator[Citation]:
    """Yield the citations of a text."""
    for match in CITATION.finditer(text):
        yield Citation(_place(where, text, match), match[1], match[2] or "")


def line_numbers_in(text: str, where: str) -> list[str]:
    """Return what looks like a citation by line number."""
    return [f"{_place(where, text, match)} {match[0]}" for match in LINE_NUMBER.finditer(text)]


def unknown_paths_in(text: str, where: str, roots: list[Path]) -> list[str]:
    """Return paths of Python files that are neither citations nor files below one of ``roots``."""
    return [
        f"{_place(where, text, match)} {match[0]}"
        for match in PATH.finditer(text)
        if match[0].partition("/")[0] not in PACKAGES
        and not any((root / match[0]).is_file() for root in roots)
    ]


def _place(where: str, text: str, match: re.Match[str]) -> str:
    return f"{where}:{text.count(chr(10), 0, match.start()) + 1}"


def problem_of(citation: Citation, folder: Path) -> str:
    """Return why a citation leads nowhere, or "".

    Args:
        citation: of a file in ``folder``.
        folder: of the package that is cited.
    """
    path = folder.parent / citation.path
    if not path.is_file():
        return "there is no such file"
    node: ast.AST = ast.parse(path.read_text())
    for name in filter(None, citation.symbol.split(".")):
        inside = next((child for child in _defined_in(node) if name in _names_of(child)), None)
        if inside is None:
            return f"there is no {name}"
        node = inside
    return ""


def _defined_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a module or a class defines, within ``if`` and ``try`` too."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.If | ast.Try):
        return
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If | ast.Try):
            yield from _defined_in(child)


def _names_of(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()
