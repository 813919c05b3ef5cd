"""Modules on the NPU, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.ascend.environment import NPU, ROOT
from vllm_ascend_spec.cli import env

TIME_LIMIT_S = 800


def run_module(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m`` with these words to its end, whatever its status is."""
    plugins = {"VLLM_PLUGINS": str(env.plugins({}))}
    return subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, **NPU, **plugins, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
