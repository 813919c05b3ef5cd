"""Shared by the simulator's tests: they run where it is switched on, and say so elsewhere."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

# Before anything imports torch, which reads it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

IS_HERE = all(importlib.util.find_spec(name) for name in ("npu_sim", "torch_npu"))
REASON = "tests of the simulated NPU: skipped, they need its environment (make test-npu-sim)"
collect_ignore_glob = [] if IS_HERE else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why no test here was collected."""
    if not IS_HERE:
        terminalreporter.write_line(REASON)
