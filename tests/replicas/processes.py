"""Start replicas of a target, and end all of their processes when they wait for each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import CPU, NPU, ROOT

Start = Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]]
# Out of step they would wait for ever.
TIME_LIMIT_S = 400


def run_copies(job: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a job of ``tests.replicas.engine``; return the answers and what was drafted.

    Args:
        job: its ``folder`` gets a file of notes for each copy.
        environment: of the device.
    """
    given = {name: value for name, value in os.environ.items() if name not in (*NPU, *CPU)}
    copies = subprocess.Popen(
        [sys.executable, "-m", "tests.replicas.engine"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**given, "VLLM_CPU_OMP_THREADS_BIND": "nobind", **environment},
        cwd=ROOT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = copies.communicate(json.dumps(job), timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(copies.pid, signal.SIGKILL)
        said, _ = copies.communicate()
    found = Path(job["folder"]) / "answers.json"
    if not found.is_file():
        pytest.fail(f"the copies ended with {copies.returncode}:\n{said[-4000:]}")
    return json.loads(found.read_text())
