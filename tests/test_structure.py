"""Who may import whom, by the tables of ``docs/structure.md``, and how long a file may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.imports import (
    PACKAGE,
    ROOT,
    all_imports,
    cycles,
    heavy_imports_of,
    imported,
    imports_when_loaded,
    imports_when_run,
    module_of,
    named,
    part_of,
    runs_on_import,
)
from tests.structure_page import PAGE, Part, files_in, parts_in, parts_there
from vllm_ascend_spec.patches import registry

SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
NAME = PACKAGE.name
TEXT = PAGE.read_text()
TABLE = parts_in(TEXT)
LIGHT_FILES = files_in(TEXT, "Light files")
LIGHT = sorted({path for files in LIGHT_FILES.values() for path in files})
KNOW_VLLM = files_in(TEXT, "Files that know vLLM's insides")
LONGEST_FILE = 600


def others(part: str, modules: set[str]) -> set[str]:
    """Return the parts of the package, other than ``part``, that these modules belong to."""
    return {name for name in map(part_of, modules) if name in parts_there()} - {part}


def imports_of(part: str) -> dict[str, set[str]]:
    """Return each part that a part imports, with the modules that do."""
    found: dict[str, set[str]] = {}
    for path in parts_there()[part]:
        for name in others(part, all_imports(path)):
            found.setdefault(name, set()).add(module_of(path))
    return found


def names_of(part: str) -> set[str]:
    return others(part, {name for path in parts_there()[part] for name in named(path)})


def knows_vllm(path: Path) -> bool:
    """Whether a file imports modules inside of vLLM or vllm-ascend; ``vllm.LLM`` is not inside."""
    return any(
        name.startswith(("vllm_ascend.", "torch_npu."))
        or (name.startswith("vllm.") and not name.removeprefix("vllm.")[:1].isupper())
        for name in imports_when_run(path)
    )


def not_allowed(row: Part, imports: set[str], names: set[str]) -> set[str]:
    return (imports - row.imports) | (names - row.names)


def test_every_part_has_its_row() -> None:
    assert sorted(TABLE) == sorted(parts_there())


@pytest.mark.parametrize("part", sorted(parts_there()))
def test_a_part_imports_what_the_table_says(part: str) -> None:
    imports, names = imports_of(part), names_of(part)
    row = TABLE[part]
    wrong = not_allowed(row, set(imports), names)
    assert {name: sorted(imports.get(name, ())) for name in wrong} == {}
    # The table says what is, not what might be.
    assert row.imports <= set(imports)
    assert row.names <= names


def test_there_are_no_cycles() -> None:
    assert cycles({part: imports_of(part) for part in parts_there()}) == []
    assert cycles({row.name: row.imports for row in TABLE.values()}) == []


@pytest.mark.parametrize("pattern", LIGHT_FILES)
def test_light_modules_import_neither_torch_nor_vllm(pattern: str) -> None:
    assert LIGHT_FILES[pattern]
    for path in LIGHT_FILES[pattern]:
        heavy = {name.partition(".")[0] for name in imports_when_loaded(path)}
        assert not heavy & {"torch", "vllm", "numpy", "transformers", "safetensors"}, path


def test_light_modules_load_nothing_heavy_through_others() -> None:
    assert len(LIGHT) > 20
    assert heavy_imports_of(", ".join(map(module_of, LIGHT))) == []


def test_the_list_of_files_that_know_vllm_is_true() -> None:
    listed = {path for files in KNOW_VLLM.values() for path in files}
    assert sorted(module_of(p) for p in SOURCES if knows_vllm(p) and p not in listed) == []
    idle = [name for name, files in KNOW_VLLM.items() if not any(map(knows_vllm, files))]
    assert idle == []


def test_what_the_table_does_not_allow_is_found() -> None:
    text = (
        "## Folders of the package\n| part | job | may import |\n|---|---|---|\n"
        "| `a/` | does this | `b` |\n| `b/`, `c.py` | does that | by name `a` |\n## Next\n"
        "- `ops/*.py`: no pattern of the list above\n"
    )
    rows = parts_in(text)
    assert rows["a"] == Part("a", frozenset({"b"}), frozenset())
    assert rows["b"].names == rows["c"].names == {"a"}
    assert not_allowed(rows["a"], {"b"}, set()) == set()
    assert not_allowed(rows["a"], {"b", "c"}, {"b"}) == {"b", "c"}
    assert list(files_in(text, "Next")) == ["ops/*.py"]


def test_cycles_are_found() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["e"]}
    assert cycles(graph) == [["b", "c"], ["e"]]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_files_are_short_and_say_what_they_are() -> None:
    texts = {path: path.read_text() for path in (*SOURCES, *TESTS)}
    assert [p for p, text in texts.items() if len(text.splitlines()) > LONGEST_FILE] == []
    # An empty file says nothing, and need not.
    silent = [
        p for p, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_tests_share_modules_and_not_each_others_conftest() -> None:
    ours = [path for path in TESTS if ROOT / "tests" / "upstream" / "plugin" not in path.parents]
    found = [
        f"{module_of(path)} imports {name}"
        for path in ours
        for name in all_imports(path)
        if name.startswith("tests.") and "conftest" in name.split(".")
    ]
    assert not found


def test_patches_are_one_file_each_and_say_why_how_and_until_when() -> None:
    for name in (patch.name for patch in registry.PATCHES):
        tree = ast.parse((PACKAGE / "patches" / f"{name.replace('.', '/')}.py").read_text())
        docstring = ast.get_docstring(tree) or ""
        assert all(f"{word}: " in docstring for word in ("Why", "How", "Until")), name


def test_versions_are_compared_in_upstream_alone() -> None:
    inside = PACKAGE / "upstream"
    found = [
        module_of(path)
        for path in SOURCES
        if inside not in path.parents and f"{NAME}.upstream.ranges" in all_imports(path)
    ]
    assert found == []


def test_nobody_tries_whether_a_name_of_theirs_can_be_imported() -> None:
    assert [module_of(path) for path in SOURCES if tries_theirs(ast.parse(path.read_text()))] == []
    assert tries_theirs(
        ast.parse("try:\n    from vllm.a import b\nexcept ImportError:\n    b = None")
    )


def tries_theirs(tree: ast.AST) -> bool:
    """Tell whether an import of vLLM's or vllm-ascend's may fail without harm."""
    return any(
        isinstance(node, ast.Try)
        and any("ImportError" in ast.unparse(h.type) for h in node.handlers if h.type)
        and any(
            name.partition(".")[0] in {"vllm", "vllm_ascend"}
            for name in imported(ast.walk(ast.Module(node.body, [])), PACKAGE / "x.py")
        )
        for node in ast.walk(tree)
    )


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
    assert imported(runs_on_import(tree), path) == everywhere - {"h", "j"}


def test_modules_that_are_given_by_name_are_found(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        f'A = "{NAME}.worker.cpu.Worker"\nB = ("{NAME}.methods.eagle:Drafter",)\n'
        f'C = "see {NAME}.ops"\nD = f"{NAME}.{{A}}"\n'
    )
    assert named(file) == {f"{NAME}.worker.cpu.Worker", f"{NAME}.methods.eagle.Drafter"}
