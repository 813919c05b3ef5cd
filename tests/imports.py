"""What a file imports by its source, and what importing it pulls in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vllm_ascend_spec"
HEAVY = ("torch", "vllm", "transformers", "numpy")
# A module of ours given by its name, for somebody to import later, maybe with a class in it.
BY_NAME = re.compile(rf"{PACKAGE.name}(?:\.\w+)+(?::\w+)?")


def heavy_imports_of(module: str) -> list[str]:
    """Return the heavy packages that importing ``module`` imports, in a process of its own."""
    code = (
        f"import sys, {module}\n"
        f"sys.stdout.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str | None:
    """Return the folder or file of our package that ``module`` belongs to, None if to neither."""
    head, _, rest = module.partition(".")
    return rest.partition(".")[0] or None if head == PACKAGE.name else None


def imported(nodes: Iterable[ast.AST], path: Path) -> set[str]:
    """Return the modules that import statements among ``nodes`` name, as absolute names."""
    names: set[str] = set()
    folder = path.relative_to(ROOT).parent.parts
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(folder[: len(folder) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


@cache
def all_imports(path: Path) -> set[str]:
    """Return what a file imports anywhere, in functions and for type checkers too."""
    return imported(ast.walk(ast.parse(path.read_text())), path)


@cache
def imports_when_run(path: Path) -> set[str]:
    """Return what a file imports anywhere, ``if TYPE_CHECKING:`` excepted."""
    return imported(not_for_types(ast.parse(path.read_text())), path)


@cache
def imports_when_loaded(path: Path) -> set[str]:
    """Return what a file imports at module level, ``if TYPE_CHECKING:`` excepted."""
    return imported(runs_on_import(ast.parse(path.read_text())), path)


def runs_on_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when a module is imported: not what is in functions."""
    return not_for_types(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def not_for_types(node: ast.AST, leave_out: tuple[type[ast.AST], ...] = ()) -> Iterator[ast.AST]:
    """Yield everything but what only type checkers look at, and what is in nodes to leave out."""
    yield node
    if isinstance(node, leave_out):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for child in ast.iter_child_nodes(node):
        yield from not_for_types(child, leave_out)


@cache
def named(path: Path) -> set[str]:
    """Return the modules of ours that a file gives by name, in strings that are nothing else."""
    strings = (
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {text.replace(":", ".") for text in strings if BY_NAME.fullmatch(text)}


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other, each sorted."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            for node in graph.get(left.pop(), ()):
                if node not in found:
                    found.add(node)
                    left.append(node)
        return found

    everything = {node: reached(node) for node in graph}
    groups = {
        tuple(sorted(other for other in found if node in everything.get(other, ())))
        for node, found in everything.items()
        if node in found
    }
    return [list(group) for group in sorted(groups)]
