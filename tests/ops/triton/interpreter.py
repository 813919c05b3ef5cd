"""Triton's interpreter, which a process has from its start or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def run_interpreted(*arguments: str) -> None:
    """Run pytest in a process that has the interpreter, the ops on Triton's backend."""
    plugins = ["-p", "no:cacheprovider", "-p", "tests.ops.triton.on_triton"]
    # As `make test-all` runs this one.
    chosen = ["-m", "not soak"] if "TESTS_COMPILE_ALL" in os.environ else []
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore", *plugins, *chosen, *arguments],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    report = f"{result.stdout}\n{result.stderr}"
    assert result.returncode == 0, report
    assert " passed" in report, report
