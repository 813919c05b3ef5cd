"""Build the package's archives in a copy of its sources, by setuptools' hooks, as pip does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = ("pyproject.toml", "README.md", "LICENSE", "vllm_ascend_spec", "ops/build.py", "ops/cpu")
BUILT = ("*.so", "*.sha256", "*.problem.txt", "__pycache__")
NO_COMPILER = {"CC": "no-such-compiler", "CXX": "no-such-compiler"}


def copy_source(copy: Path) -> Path:
    """Copy what is needed to build, and nothing that was built."""
    for name in NAMES:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns(*BUILT)
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def call_hook(
    hook: str,
    source: Path,
    *,
    python: str = sys.executable,
    before: str = "",
    **environment: str,
) -> Path:
    """Run a hook of PEP 517, as pip does; return the archive that it made.

    ``before`` is code that runs first.
    """
    target = source.parent / hook
    code = f"{before}\nfrom setuptools import build_meta; print(build_meta.{hook}({str(target)!r}))"
    target.mkdir()
    done = subprocess.run(
        [python, "-c", code],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return target / done.stdout.splitlines()[-1]


def unpack(wheel: Path) -> Path:
    """Unpack a wheel beside itself."""
    folder = wheel.parent / "unpacked"
    zipfile.ZipFile(wheel).extractall(folder)
    return folder
