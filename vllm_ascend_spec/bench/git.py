"""Find the git revision of this project's checkout, never that of another repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TIMEOUT_S = 10.0
PROJECT = 'name = "vllm-ascend-spec"'


def revision(file: str | Path = __file__) -> str | None:
    """Return the revision, marked if the checkout has changes; None if there is no checkout.

    An installed package often lies inside an unrelated repository. So ``file`` must be tracked,
    under its own path, by a repository whose root is this project's folder.

    Args:
        file: a file of this package, as deep below the project's folder as this module.

    Raises:
        OSError: git cannot be run.
        subprocess.TimeoutExpired: git does not answer.
    """
    file = Path(file).resolve()
    root = file.parents[2]
    project = root / "pyproject.toml"
    if not (root / ".git").exists() or not project.is_file():
        return None
    if PROJECT not in project.read_text(errors="replace"):
        return None
    place = file.relative_to(root).as_posix()
    # Git names files relative to the repository's root.
    if _git(root, "ls-files", "--error-unmatch", "--full-name", "--", place) != place:
        return None
    return _git(root, "describe", "--always", "--dirty", "--abbrev=12") or None


def _git(root: Path, *arguments: str) -> str:
    # Hooks of another repository set GIT_DIR and more.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answer = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", *arguments],
        cwd=root,
        env={**variables, "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    return answer.stdout.strip() if answer.returncode == 0 else ""
