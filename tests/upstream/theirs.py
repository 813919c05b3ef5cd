"""Runs tests of another project, with a plugin that puts parts of ours in place of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = Path(__file__).parent / "plugin"
# Where .ci/setup and .ci/setup-version unpack sources, in the virtual environment.
SOURCES = Path(sys.prefix) / "src"

# Exit codes of a run to its end: all tests passed, or some failed.
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def run_their_tests(
    source: Path, tests: list[str], plugin: str, folder: Path, **environment: str
) -> dict[str, Any]:
    """Run tests in a process of their own and return how each ended, see plugin/outcomes.py.

    Args:
        source: the root of the other project's source.
        tests: what pytest is to run, relative to that.
        plugin: name of a module of plugin/.
        folder: an empty folder for the outcome.
        environment: more variables.

    Raises:
        RuntimeError: pytest ended before the tests did; the message is what it printed.
    """
    outcomes = folder / "outcomes.json"
    # What other tests of ours have set is not for theirs.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_", "TRITON_", "PYTEST_"))
    }
    paths = {"PYTHONPATH": os.pathsep.join([str(PLUGINS), str(ROOT)]), "OUTCOMES": str(outcomes)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    result = subprocess.run(
        [*command, "-p", "outcomes", "-p", plugin, *tests],
        cwd=source,
        env={**inherited, **paths, **environment},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    if result.returncode not in ENDED or not outcomes.is_file():
        raise RuntimeError(result.stdout[-4000:] + result.stderr[-4000:])
    return json.loads(outcomes.read_text())
