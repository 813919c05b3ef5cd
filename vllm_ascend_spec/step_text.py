"""What worker and scheduler say of a step, as it travels to the metrics: all of it in one text.

vLLM sends a text with each step's statistics, for the mode of its graph
(``vllm/compilation/cuda_graph.py:CUDAGraphStat``). What is ours goes behind it, each part with one
capital letter as its name, so nothing of ours has to be sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_BETWEEN = " | "
_PART = re.compile(r"([A-Z])=(.*)")
# Whose part the times are; those of the scheduler are in control/told.py.
TIMES = "T"


def behind(text: str, name: str, value: str) -> str:
    """Return a text with one more part behind it."""
    return f"{text}{_BETWEEN}{name}={value}"


def split(text: str) -> tuple[str, Mapping[str, str]]:
    """Return what stands before, and the parts by name; none for a text without any of ours."""
    before, *parts = text.split(_BETWEEN)
    found = [_PART.fullmatch(part) for part in parts]
    if not parts or None in found:
        return text, {}
    return before, {match[1]: match[2] for match in found if match is not None}


@dataclass(frozen=True)
class Times:
    """Where a worker's time went since it told last; a step or more.

    It is the time of the host. On a CPU that is all; a device works on when the host has gone on.

    Attributes:
        step: microseconds in the runner, all of a step.
        verification: of these, in masks of structured output, sampling and verification.
        drafting: of these, in making drafts.
    """

    step: int
    verification: int
    drafting: int

    def behind(self, text: str) -> str:
        """Return a text with this behind it."""
        return behind(text, TIMES, f"{self.step},{self.verification},{self.drafting}")

    @classmethod
    def of(cls, parts: Mapping[str, str]) -> Times | None:
        """Return what the parts say; None if nothing."""
        if TIMES not in parts:
            return None
        step, verification, drafting = map(int, parts[TIMES].split(","))
        return cls(step, verification, drafting)
