"""What is refused: the option and the message of every ``ConfigError`` that an engine can raise.

They are read from the sources. ``…`` stands for what is only known when an error is raised.
"""

from __future__ import annotations

import ast
import importlib
from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.docs.figures.rows import row
from vllm_ascend_spec import config
from vllm_ascend_spec.config import ascend
from vllm_ascend_spec.config.options import ABSENT

PACKAGE = Path(config.__file__).parents[1]
# Errors of other folders are about the options of one command, which its help describes.
FOLDERS = ("checkpoint", "config", "devices", "hooks", "methods", "platform", "quantization")
ERRORS = ("ConfigError", "CheckpointError")
UNKNOWN = "…"
# A message needs as many letters that are known.
LEAST = 18
# Nothing else is called while a message is made.
CALLED = {"join", "map", "repr", "str", "values"}
Known = Mapping[str, Any]


def rows() -> Iterator[str]:
    """Yield an option and a message, by option."""
    for option, message in sorted({*_of_tables(), *_of_sources()}):
        yield row(*(cell.replace("|", "\\|") for cell in (f"`{option}`", message)))


def _of_tables() -> Iterator[tuple[str, str]]:
    """Yield what is refused by a table of reasons."""
    for name, (_, why) in ABSENT.items():
        yield f"speculative_config.{name}", why
    for name, why in ascend.SPECULATIVE.items():
        yield f"speculative_config.{name}", f"has no effect on an NPU: {why}"
    for place, why in ascend.ADDITIONAL.items():
        yield f"additional_config.{'.'.join(place)}", f"on an NPU: {why}"


def _of_sources() -> Iterator[tuple[str, str]]:
    paths = [path for name in FOLDERS for path in sorted((PACKAGE / name).rglob("*.py"))]
    for path in (path for path in paths if any(name in path.read_text() for name in ERRORS)):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        tree, known = ast.parse(path.read_text()), None
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if not _is_error(call):
                    continue
                known = known or vars(importlib.import_module(".".join(parts)))
                yield from _shown(call, ChainMap(_locals(function, known), known))


def _is_error(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ERRORS
        and len(node.args) == 3
    )


def _shown(call: Any, known: Known) -> Iterator[tuple[str, str]]:
    option, _, problem = (text_of(argument, known) for argument in call.args)
    letters = problem.replace(UNKNOWN, "").strip(" .,;:()'")
    # Where a part is None, this version has no such limit.
    if len(letters) >= LEAST and "None" not in problem and option.strip(f"{UNKNOWN}."):
        yield option, problem


def _locals(function: ast.FunctionDef, known: Known) -> dict[str, str]:
    """Return the texts that a function gives names to; of several for one name, none."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.NamedExpr) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                found.setdefault(target.id, set()).add(text_of(node.value, known))
    return {name: next(iter(texts)) for name, texts in found.items() if len(texts) == 1}


def text_of(node: ast.expr, known: Known) -> str:
    """Return the text that an expression makes, as far as it is known."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(partial(text_of, known=known), node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, known) + text_of(node.right, known)
    value = node.value if isinstance(node, ast.FormattedValue) else node
    calls = [found.func for found in ast.walk(value) if isinstance(found, ast.Call)]
    if {getattr(call, "id", getattr(call, "attr", "")) for call in calls} - CALLED:
        return UNKNOWN
    try:
        made = eval(compile(ast.Expression(value), "source", "eval"), {}, known)
    except Exception:
        return UNKNOWN
    return repr(made) if getattr(node, "conversion", -1) == ord("r") else str(made)
