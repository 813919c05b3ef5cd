"""Python in processes of their own, for what can be had only once per process."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run Python code in a process of its own.

    Args:
        code: What it runs.
        arguments: Its sys.argv[1:].
        environment: What its environment has besides this process's.
    """
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def start_python(code: str, *arguments: str, **environment: str) -> subprocess.Popen:
    """Start Python code in a process of its own, as `run_python` does, and do not wait for it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
