"""Whether vLLM's model of a target gives the states of inner layers, which every head here reads.

vLLM tells it by a base of the model's class (``SupportsEagle3``). Importing the class takes
seconds, so it is looked up in the source. What cannot be found there is left to the engine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

GIVES_STATES = "SupportsEagle3"
MODELS = Path("model_executor", "models")


def problem_of_layers(architecture: str) -> str | None:
    """Return why a head cannot read a target's layers, or None if it can or nobody knows.

    Args:
        architecture: the first of ``architectures`` in its ``config.json``.
    """
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / MODELS
    place = _registered(folder, architecture)
    if place is None or _gives_states(folder, *place, set()) is not False:
        return None
    return f"vLLM's {place[1]} does not give the states of its layers ({GIVES_STATES})"


def _registered(folder: Path, architecture: str) -> tuple[str, str] | None:
    """Return module and class of an architecture, from the tables of vLLM's registry."""
    for node in ast.walk(_parsed(folder / "registry.py")):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == architecture:
                names = [part.value for part in ast.walk(value) if isinstance(part, ast.Constant)]
                if len(names) == 2 and all(isinstance(name, str) for name in names):
                    return str(names[0]), str(names[1])
    return None


def _gives_states(folder: Path, module: str, name: str, seen: set[str]) -> bool | None:
    """Tell whether a class has the base; None if one of its bases is not found."""
    tree = _parsed(folder / f"{module}.py")
    found = next(
        (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name), None
    )
    if found is None or name in seen:
        return None if found is None else False
    elsewhere = dict(_imported(tree))
    answers: list[bool | None] = []
    for base in found.bases:
        named = base.id if isinstance(base, ast.Name) else ""
        if named == GIVES_STATES:
            return True
        if named in elsewhere:
            answers.append(_gives_states(folder, *elsewhere[named], {*seen, name}))
        elif any(isinstance(each, ast.ClassDef) and each.name == named for each in tree.body):
            answers.append(_gives_states(folder, module, named, {*seen, name}))
    if any(answers):
        return True
    return None if None in answers else False


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield classes of other models that a module imports: its name for them, and their place."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").removeprefix("vllm.model_executor.models.")
            if module and "." not in module and module != "interfaces" and _is_beside(node):
                for each in node.names:
                    yield each.asname or each.name, (module, each.name)


def _is_beside(node: ast.ImportFrom) -> bool:
    return node.level == 1 or (node.module or "").startswith("vllm.model_executor.models.")


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ast.Module([], [])
