"""The packages that documents show how to write, installed in a folder by pip.

The documents are the only place where their text is: what is tested is what is read.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# A heading that ends in a file's name, what is said about it, and the file.
FILE = re.compile(
    r"^## [^\n]*: `([\w./]+)`\n(?:(?!```|##)[^\n]*\n)*```\w+\n(.*?)^```$", re.M | re.S
)


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a document writes, by name."""
    return dict(FILE.findall(page.read_text()))


def install(page: Path, folder: Path) -> Path:
    """Install a document's package into ``folder``, which stands for a ``site-packages``."""
    source = folder / "source"
    for name, text in files_of(page).items():
        path = source / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    # With the setuptools that is here; without isolation no index is asked.
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder))
    done = run("-m", "pip", "install", *options, str(source), environment=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def with_path(folder: Path, **environment: str) -> dict[str, str]:
    """Return the environment of a process that has what is installed in ``folder``."""
    path = os.pathsep.join(filter(None, (str(folder), str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **environment, "PYTHONPATH": path}


def run(*words: str, environment: dict[str, str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run our Python with ``words`` to its end."""
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        **more,
    )
