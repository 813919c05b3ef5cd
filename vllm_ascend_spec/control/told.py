"""How many drafts a step makes and why, as it travels from the scheduler to the metrics.

Like a step's graph (``graphs/step.py``), and behind it, it goes in the text that vLLM has for a
step's mode (``vllm/compilation/cuda_graph.py:CUDAGraphStat``), so nothing of ours has to be sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Of the counter that steps come to.
METRIC = "vllm:spec_decode_draft_length_steps"
# Why a step makes as many drafts as it does, beside the reasons of goodput.py.
FIXED, SCHEDULED = "fixed", "scheduled"
# And of a step without drafts, where they were chosen.
REJECTED, COSTLY = "hardly accepted", "does not pay"

_BEFORE = " | "
_TEXT = re.compile(r"K=(?P<drafts>\d+): (?P<reason>.+)")


@dataclass(frozen=True)
class Told:
    """What is told of a step.

    Attributes:
        drafts: K, how many drafts each request gets in it.
        reason: why as many.
    """

    drafts: int
    reason: str

    def behind(self, text: str) -> str:
        """Return a text with this behind it."""
        return f"{text}{_BEFORE}K={self.drafts}: {self.reason}"


def split(text: str) -> tuple[str, Told | None]:
    """Return what stands before, and what is told; None where nothing is."""
    before, found, told = text.partition(_BEFORE)
    match = _TEXT.fullmatch(told) if found else None
    if match is None:
        return text, None
    return before, Told(int(match["drafts"]), match["reason"])
