"""What our texts cite of vLLM, vllm-ascend and speculators stands there."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.upstream.citations import (
    PACKAGES,
    Citation,
    citations_in,
    line_numbers_in,
    problem_of,
    unknown_paths_in,
)
from vllm_ascend_spec.conformance.look import (
    installed_versions,
    patches_without_fault,
)

ROOT = Path(__file__).parents[2]
FOLDERS = ("vllm_ascend_spec", "ops", "docs", "examples", "tests")
KINDS = {".py", ".md", ".cpp", ".h", ".txt", ".toml", ".sh", ""}
# Their own examples of what is no citation.
NO_TEXTS = {
    "tests/upstream/test_citations.py",
    "tests/upstream/test_wheel.py",
    "tests/ops/triton_ascend/locations.py",
}
# Of each package; with fewer, the search is what is broken.
FEWEST = {"vllm": 20, "vllm_ascend": 8, "speculators": 5}


@cache
def texts() -> dict[str, str]:
    """Return every text of ours by its path."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files += [*ROOT.glob("*.md"), ROOT / "pyproject.toml"]
    found = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in files
        if path.is_file() and path.suffix in KINDS and "__pycache__" not in path.parts
    }
    return {name: text for name, text in found.items() if name not in NO_TEXTS}


def citations() -> list[Citation]:
    return [found for name, text in texts().items() for found in citations_in(text, name)]


def file_of(found: Citation) -> str:
    return found.where.partition(":")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_citation_leads_somewhere(package: str) -> None:
    cited = [found for found in citations() if found.path.startswith(f"{package}/")]
    assert len(cited) >= FEWEST[package]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed; make test-npu-sim has a place where it is")
    folder = Path(next(iter(spec.submodule_search_locations)))
    # A patch of another version cites that one.
    others = {
        f"{name.replace('.', '/')}.py" for name in patches_without_fault(installed_versions())
    }
    problems = {found: problem_of(found, folder) for found in cited if file_of(found) not in others}
    assert {found: problem for found, problem in problems.items() if problem} == {}


def test_nothing_is_cited_by_its_line() -> None:
    assert [place for name, text in texts().items() for place in line_numbers_in(text, name)] == []


def test_every_other_path_is_one_of_ours() -> None:
    unknown = []
    for name, text in texts().items():
        if name.startswith("tests/") or name.endswith(".md"):
            continue  # tests write files; tests/docs looks at what documents name
        own = ROOT / name
        roots = [ROOT, ROOT / "vllm_ascend_spec", *own.parents]
        # A page that shows how to write a package names its files.
        written = re.findall(r"^#+ .*`([\w./]+)`", text, re.MULTILINE)
        found = unknown_paths_in(text, name, roots)
        unknown += [place for place in found if place.rpartition(" ")[2] not in written]
    assert unknown == []


STEP = """
class Runner:
    width: int = 3

    def step(self):
        later = 1

if True:
    def late(): ...
TABLE = {}
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("vllm/step.py", ""),
        ("vllm/step.py:Runner", ""),
        ("(vllm/step.py:Runner.step).", ""),
        ("see vllm/step.py:Runner.step.", ""),
        ("# in vllm/step.py:\n    # Runner.width, which", ""),
        ("vllm/step.py: it", ""),
        ("vllm/step.py:late, vllm/step.py:TABLE", ""),
        ("vllm/steps.py", "there is no such file"),
        ("vllm/step.py:Runners", "there is no Runners"),
        ("vllm/step.py:step", "there is no step"),
        ("vllm/step.py:Runner.step.later", "there is no later"),
        ("vllm/step.py:\nRunner.run", "there is no run"),
    ],
)
def test_citations_are_found_and_judged(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "step.py").write_text(STEP)
    found = list(citations_in(text, "a.md"))
    assert found
    assert {problem_of(citation, tmp_path / "vllm") for citation in found} == {problem}
    assert line_numbers_in(text, "a.md") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one\n(v1/step.py:12)", "a.md:2 v1/step.py:12"),
        ("vllm/step.py:12-15", "a.md:1 vllm/step.py:12"),
        ("step.cpp:12", "a.md:1 step.cpp:12"),
        ("not (:59-64).", "a.md:1 (:59-"),
        ("step.py:\n# 12", "a.md:1 step.py:\n# 12"),
    ],
)
def test_line_numbers_are_found(text: str, words: str) -> None:
    assert line_numbers_in(text, "a.md") == [words]


def test_paths_that_are_nobodys_are_found(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "build.py").touch()
    text = "`ops/build.py`, vllm/v1/x.py, `v1/worker/runner.py`, build.py, ops/*/build.py"
    assert unknown_paths_in(text, "a.md", [tmp_path]) == ["a.md:1 v1/worker/runner.py"]
