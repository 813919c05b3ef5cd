"""Append per-step statistics of worker and scheduler to a text that vLLM sends anyway.

vLLM sends the graph mode of each step as a text in its statistics
(``vllm/compilation/cuda_graph.py:CUDAGraphStat``). Our parts are appended to that text, each named
by one capital letter, so we need no message of our own to reach the metrics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_BETWEEN = " | "
_PART = re.compile(r"([A-Z])=(.*)")
# Name of the part with the times; the scheduler's part names are in control/told.py.
TIMES = "T"


def behind(text: str, name: str, value: str) -> str:
    """Return ``text`` with one more part appended."""
    return f"{text}{_BETWEEN}{name}={value}"


def split(text: str) -> tuple[str, Mapping[str, str]]:
    """Return vLLM's text and our parts by name; no parts if the text has none of ours."""
    before, *parts = text.split(_BETWEEN)
    found = [_PART.fullmatch(part) for part in parts]
    if not parts or None in found:
        return text, {}
    return before, {match[1]: match[2] for match in found if match is not None}


@dataclass(frozen=True)
class Times:
    """Where a worker's time went since its last report, one or more steps ago.

    This is host time. On a CPU that is all; an accelerator may still work when the host goes on.

    Attributes:
        step: microseconds in the runner, including the two parts below.
        verification: microseconds in structured-output masks, sampling and verification.
        drafting: microseconds in making drafts.
    """

    step: int
    verification: int
    drafting: int

    def behind(self, text: str) -> str:
        """Return ``text`` with these times appended."""
        return behind(text, TIMES, f"{self.step},{self.verification},{self.drafting}")

    @classmethod
    def of(cls, parts: Mapping[str, str]) -> Times | None:
        """Read the times from the parts; None if they have none."""
        if TIMES not in parts:
            return None
        step, verification, drafting = map(int, parts[TIMES].split(","))
        return cls(step, verification, drafting)
