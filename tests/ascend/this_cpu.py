"""Run end-to-end tests on the CPU of this environment, which has torchvision.

vLLM imports it for Qwen3.5, Qwen3-Next and the Qwen-VLs.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.ascend.environment import CPU_HERE, ROOT
from tests.ascend.processes import NOT_GIVEN


def assert_pass(*tests: str) -> None:
    """Run tests with these arguments of pytest; all have to pass, and none may be skipped."""
    given = {name: value for name, value in os.environ.items() if name not in NOT_GIVEN}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**given, **CPU_HERE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
