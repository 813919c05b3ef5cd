"""Call a function in a subprocess: a broken library can kill the process that loads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 120.0
# Printed before the result, after whatever libraries print when they are loaded.
MARK = "result: "
# The subprocess gets this import path, but not the working directory, which may be gone.
CODE = f"""
import importlib, json, sys
sys.path[:], module, function, *arguments = json.loads(sys.argv[1])
result = getattr(importlib.import_module(module), function)(*arguments)
sys.stdout.write("\\n{MARK}" + json.dumps(result) + "\\n")
"""


def call_elsewhere(module: str, function: str, *arguments: str) -> Any:
    """Return what ``module.function(*arguments)`` returns, if JSON can hold it.

    Raises:
        RuntimeError: the process ended without a result.
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it does not end.
    """
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps([import_path(), module, function, *arguments])],
        cwd=Path(sys.executable).parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode != 0 or not results:
        last = (done.stderr.strip().splitlines() or ["no error is told"])[-1]
        raise RuntimeError(f"the process that checked ended with status {done.returncode}: {last}")
    return json.loads(results[-1].removeprefix(MARK))


def import_path() -> list[str]:
    """Return this process's import path, absolute."""
    try:
        here = Path.cwd()
    except OSError:
        return [item for item in sys.path if Path(item).is_absolute()]
    return [str(here / item) for item in sys.path]
