"""Engines in processes of their own; equal engines run once."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.ascend.environment import CPU, NPU, ROOT
from tests.ascend.matrix import Case
from vllm_ascend_spec.cli import env

TIME_LIMIT_S = 840
Outcome = dict[str, Any]
Run = Callable[..., Outcome]


class Engines:
    """What engines answered, kept on disk for all processes of a session of pytest.

    Args:
        folder: of the session.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def run(self, case: Case, environment: dict[str, str] = NPU, **job: Any) -> Outcome:
        """Return what an engine answers to a case; equal ones are started once."""
        job |= {
            "arguments": case.arguments(),
            "spec": case.spec(),
            "requests": list(case.requests),
            "watched": case.watched,
        }
        environment = environment | {"NPU_SIM_DEVICES": str(case.devices)}
        key = hashlib.sha256(json.dumps([job, environment], sort_keys=True).encode()).hexdigest()
        output = self._folder / f"{key}.json"
        with FileLock(output.with_suffix(".lock")):
            if not output.is_file():
                start({**job, "output": str(output)}, environment)
        return json.loads(output.read_text())


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """Return one folder for all processes of a session."""
    base = factory.getbasetemp()
    # pytest-xdist gives each of its processes a folder inside the session's.
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "engines"


def start(job: dict[str, Any], environment: dict[str, str]) -> None:
    """Run one engine, which writes its outcome; fail with its last words if it does not."""
    given = {name: value for name, value in os.environ.items() if name not in (*NPU, *CPU)}
    plugins = {"VLLM_PLUGINS": str(env.plugins({}))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ascend.engine"],
        input=json.dumps(job),
        env={**given, **plugins, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    if not Path(job["output"]).is_file():
        pytest.fail(f"the engine ended with {done.returncode}:\n{done.stderr[-4000:]}")
