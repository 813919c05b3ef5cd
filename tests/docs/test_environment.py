"""Every environment variable that an engine or a command reads is in the documents."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PACKAGE = ROOT / "vllm_ascend_spec"
# Benchmarks and checks of new versions, which developers run.
FOR_DEVELOPERS = ("bench", "conformance")
# Set for a moment only, to keep vLLM's log short.
OWN = {"VLLM_LOGGING_LEVEL"}
# What torchrun tells the processes that it starts.
TORCHRUN = {"LOCAL_RANK", "RANK", "WORLD_SIZE"}
PAGES = ("configuration", "reliability")


def read_in(path: Path) -> set[str]:
    """Return the variables that a module reads by a text or by a constant of its own."""
    tree = ast.parse(path.read_text())
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    looked_up = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Subscript)]
    names = [name for node in looked_up for name in name_in(node)]
    found = [getattr(name, "value", constants.get(getattr(name, "id", ""))) for name in names]
    return {name for name in found if isinstance(name, str)}


def name_in(node: ast.Call | ast.Subscript) -> list[ast.expr]:
    """Return what names the variable if the expression reads one."""
    if isinstance(node, ast.Call):
        return node.args[:1] if ast.unparse(node.func) == "os.environ.get" else []
    return [node.slice] if ast.unparse(node.value) == "os.environ" else []


def test_some_are_found() -> None:
    found = read_in(PACKAGE / "devices" / "select.py")
    assert found == {"VLLM_ASCEND_SPEC_DEVICE", "VLLM_TARGET_DEVICE"}
    assert "TORCHINDUCTOR_CACHE_DIR" in read_in(PACKAGE / "hooks" / "writable_dirs.py")


@pytest.mark.parametrize("ending", [".md", ".zh.md"])
def test_each_is_in_the_documents(ending: str) -> None:
    text = "".join((ROOT / "docs" / f"{page}{ending}").read_text() for page in PAGES)
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name not in FOR_DEVELOPERS]
    read = {name for path in files for name in read_in(path)}
    assert sorted(name for name in read - OWN - TORCHRUN if f"`{name}" not in text) == []
