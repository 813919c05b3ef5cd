"""Tell whether a process that is waited for still works: it writes output, or it computes."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

# Even processes that only wait for each other wake up now and then.
IDLE_SHARE = 0.01


class SignsOfLife:
    """Watches the output and CPU time of a process and its descendants.

    Args:
        pid: id of the process.
        log: file that it writes to.
        limit_s: tolerated silence in seconds. CPU time is a sign of life only once it exceeds a
            hundredth of this, so that a process that only polls shows none.
    """

    def __init__(self, pid: int, log: Path, limit_s: float) -> None:
        self._pid = pid
        self._log = log
        self._least_cpu_s = IDLE_SHARE * limit_s
        self._bytes = 0
        self._cpu_s = 0.0
        self._last = time.monotonic()

    def silent_s(self) -> float:
        """Return the seconds since the last sign of life."""
        now, written, cpu_s = time.monotonic(), self._log.stat().st_size, cpu_seconds(self._pid)
        # The CPU time of an ended process is lost if its parent did not wait for it.
        self._cpu_s = min(self._cpu_s, cpu_s)
        if written > self._bytes or cpu_s - self._cpu_s > self._least_cpu_s:
            self._bytes, self._cpu_s, self._last = written, cpu_s, now
        return now - self._last


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its descendants, and the ended children they waited for."""
    try:
        top = psutil.Process(pid)
        processes = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    found = 0.0
    for process in processes:
        try:
            found += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:  # it has just ended
            continue
    return found
