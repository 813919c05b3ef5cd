"""Who may import whom, and how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports import heavy_imports_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vllm_ascend_spec"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
NAME = PACKAGE.name

# What a folder may import of the package; folders that are not named here may import anything.
ALLOWED = {
    "ops": ("ops", "errors", "log"),
    "config": ("config", "errors", "log", "one_line"),
    "verification": ("verification", "ops", "config", "errors", "log"),
    "proposers": ("proposers", "ops", "config", "errors", "log"),
}
LIGHT = [
    *sorted((PACKAGE / "config").rglob("*.py")),
    PACKAGE / "__init__.py",
    PACKAGE / "errors.py",
    PACKAGE / "log.py",
    PACKAGE / "plugin.py",
    PACKAGE / "versions.py",
    PACKAGE / "platform" / "__init__.py",
    PACKAGE / "platform" / "ascend_host.py",
    PACKAGE / "platform" / "select.py",
    PACKAGE / "proposers" / "__init__.py",
    PACKAGE / "proposers" / "registry.py",
]
LONGEST_FILE = 600


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(nodes: Iterator[ast.AST], path: Path) -> set[str]:
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


def all_imports(path: Path) -> set[str]:
    """Return what a file imports anywhere, strings given to ``import_module`` excepted."""
    return imported(ast.walk(ast.parse(path.read_text())), path)


def imports_when_loaded(path: Path) -> set[str]:
    """Return what a file imports at module level, ``if TYPE_CHECKING:`` excepted."""
    return imported(_runs_on_import(ast.parse(path.read_text())), path)


def _runs_on_import(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for child in ast.iter_child_nodes(node):
        yield from _runs_on_import(child)


def part_of(module: str) -> str | None:
    """Return the folder or file of our package that ``module`` belongs to."""
    head, _, rest = module.partition(".")
    return rest.partition(".")[0] if head == NAME else None


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_go_in_one_direction(folder: str) -> None:
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert len(files) > 1
    wrong = [
        f"{module_of(path)} imports {name}"
        for path in files
        for name in all_imports(path)
        if part_of(name) not in (None, *ALLOWED[folder])
    ]
    assert not wrong


def test_only_the_worker_and_the_platform_know_the_worker() -> None:
    wrong = [
        f"{module_of(path)} imports {name}"
        for path in SOURCES
        for name in all_imports(path)
        if part_of(name) == "worker" and part_of(module_of(path)) not in ("worker", "platform")
    ]
    assert not wrong


@pytest.mark.parametrize("path", LIGHT, ids=module_of)
def test_light_modules_import_neither_torch_nor_vllm(path: Path) -> None:
    heavy = {name.partition(".")[0] for name in imports_when_loaded(path)}
    assert not heavy & {"torch", "vllm", "numpy", "transformers", "safetensors"}


def test_light_modules_load_nothing_heavy_through_others() -> None:
    assert heavy_imports_of(", ".join(map(module_of, LIGHT))) == []


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=module_of)
def test_files_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    assert ast.get_docstring(ast.parse(text)) or not text.strip()


def test_mends_are_one_file_each_and_can_be_undone() -> None:
    for path in sorted((PACKAGE / "compat").glob("*.py")):
        if path.stem in ("__init__", "patching", "registry", "parser_preflight"):
            continue
        tree = ast.parse(path.read_text())
        docstring = ast.get_docstring(tree) or ""
        assert all(f"{word}: " in docstring for word in ("Why", "How", "Until")), path.stem
        named = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        named |= {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert {"apply", "revert"} <= named, path.stem


def test_the_import_finder_sees_what_it_should() -> None:
    source = (
        "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\n"
        "if TYPE_CHECKING:\n    import h\n"
        "class K:\n    import i\n"
        "def function():\n    import j\n"
    )
    tree = ast.parse(source)
    path = PACKAGE / "ops" / "x.py"
    everywhere = {"a.b", "c.d", f"{NAME}.ops.e", f"{NAME}.f.g", "h", "i", "j"}
    assert imported(ast.walk(tree), path) == everywhere
    assert imported(_runs_on_import(tree), path) == everywhere - {"h", "j"}
