"""A pytest plugin: how each test of somebody else's run ended, as JSON.

``OUTCOMES`` in the environment names the file. Other plugins here add to :data:`notes`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

notes: dict[str, Any] = {}
failed: dict[str, str] = {}
skipped: dict[str, str] = {}
passed: set[str] = set()


def pytest_runtest_logreport(report: Any) -> None:
    """Keep how each test ended, and the last line of why it failed or was skipped."""
    if report.failed:
        failed[report.nodeid] = str(report.longrepr).strip().splitlines()[-1]
    elif report.skipped:
        skipped[report.nodeid] = str(report.longrepr)
    elif report.when == "call":
        passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the file."""
    ended = {"failed": failed, "skipped": skipped, "passed": sorted(passed - set(failed))}
    Path(os.environ["OUTCOMES"]).write_text(json.dumps({**ended, **notes}))
