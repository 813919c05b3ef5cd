"""Query facts about the machine; a failed query is noted, never raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vllm_ascend_spec.bench.redact_text import redact

T = TypeVar("T")
D = TypeVar("D")
LONGEST_PROBLEM = 200


class Probes:
    """Runs probes and keeps the problem of each probe that failed.

    Attributes:
        failed: the problem, by name of the probe.
    """

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def run(self, name: str, probe: Callable[[], T], default: D) -> T | D:
        """Return the result of a probe, or ``default`` if it raises an error."""
        try:
            return probe()
        except (Exception, SystemExit) as error:
            self.failed[name] = problem_of(error)
            return default


def problem_of(error: BaseException) -> str:
    """Return an error in one line, without secrets."""
    kind = type(error).__name__
    try:
        lines = redact(str(error)).strip().splitlines()
    except Exception:  # raised by the error's own __str__
        return kind
    return f"{kind}: {lines[0]}"[:LONGEST_PROBLEM] if lines else kind
