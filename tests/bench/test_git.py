"""The revision is that of this project's checkout and of no repository around it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.bench.provenance import PROJECT, git_revision

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
PLACE = Path(provenance.__file__).relative_to(Path(provenance.__file__).parents[2])


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git know nothing of this machine's settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")


def run_git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def make_project(root: Path) -> Path:
    """Put this project's file and name into a folder; return the file."""
    file = root / PLACE
    file.parent.mkdir(parents=True)
    shutil.copy(provenance.__file__, file)
    (root / "pyproject.toml").write_text(f"[project]\n{PROJECT}\n")
    return file


def commit(root: Path) -> str:
    """Make a repository of everything in a folder; return its revision."""
    run_git(root, "init", "--quiet")
    run_git(root, "add", "--all", "--force")
    run_git(root, "commit", "--quiet", "--message", "x")
    return run_git(root, "rev-parse", "--short=12", "HEAD").strip()


def test_the_checkout_is_told_and_whether_it_has_changes(tmp_path: Path) -> None:
    file = make_project(tmp_path)
    made = commit(tmp_path)
    assert git_revision(file) == made
    file.write_text("changed")
    assert git_revision(file) == f"{made}-dirty"


def test_a_worktree_is_a_checkout(tmp_path: Path) -> None:
    made = (make_project(tmp_path / "main"), commit(tmp_path / "main"))[1]
    run_git(tmp_path / "main", "worktree", "add", "--quiet", str(tmp_path / "other"))
    assert git_revision(tmp_path / "other" / PLACE) == made


def test_installed_in_a_folder_of_another_repository(tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    file = make_project(packages)
    (packages / "pyproject.toml").unlink()
    assert commit(tmp_path)  # somebody tracks the environment too
    assert git_revision(file) is None


def test_a_copy_in_a_folder_of_another_repository(tmp_path: Path) -> None:
    file = make_project(tmp_path / "third_party" / "vllm-ascend-spec")
    assert commit(tmp_path)
    assert git_revision(file) is None
    (tmp_path / "third_party" / "vllm-ascend-spec" / ".git").mkdir()  # not whole: git looks above
    assert git_revision(file) is None


def test_a_copy_at_the_top_of_another_repository(tmp_path: Path) -> None:
    file = make_project(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
    assert commit(tmp_path)
    assert git_revision(file) is None


def test_a_file_that_is_not_tracked(tmp_path: Path) -> None:
    file = make_project(tmp_path)
    file.rename(file.with_name("other"))
    assert commit(tmp_path)
    file.with_name("other").rename(file)
    assert git_revision(file) is None


def test_a_repository_named_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_project(tmp_path / "ours")
    made = commit(tmp_path / "ours")
    make_project(tmp_path / "other")
    (tmp_path / "other" / "file").touch()
    assert commit(tmp_path / "other") != made
    # As a hook of the other repository has them.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert git_revision(file) == made
