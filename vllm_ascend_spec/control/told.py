"""What the scheduler says of a step to the metrics: its K and why, what was accepted, the watch.

It travels behind a step's graph, see ``step_text.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_ascend_spec.step_text import behind

# Of the counter that steps come to.
METRIC = "vllm:spec_decode_draft_length_steps"
# Why a step makes as many drafts as it does, beside the reasons of goodput.py.
FIXED, SCHEDULED, SEEDED = "fixed", "scheduled", "seed"
# And of a step without drafts, where they were chosen.
REJECTED, COSTLY = "hardly accepted", "does not pay"

# Names of the parts of the text.
LENGTH, METHOD, VERIFIED, WATCH = "K", "M", "V", "W"
_LENGTH = re.compile(r"(\d+): (.+)")


@dataclass(frozen=True)
class Watched:
    """What is watched over, at the end of a step.

    Attributes:
        is_low: whether drafts are hardly accepted.
        alarms: how often they came to be so, since it was told last.
        is_paused: whether no drafts are made, for they do not pay.
        pauses: how often that began, since it was told last.
    """

    is_low: bool = False
    alarms: int = 0
    is_paused: bool = False
    pauses: int = 0


@dataclass(frozen=True)
class Told:
    """What is told of a step.

    Attributes:
        drafts: K, how many drafts each request gets in it.
        reason: why as many.
        method: the drafting method.
        verified: by how many drafts a request had, how many requests there were and how many of
            their drafts were accepted, since it was told last.
        watched: what is watched over.
    """

    drafts: int
    reason: str
    method: str = ""
    verified: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    watched: Watched = field(default_factory=Watched)

    def behind(self, text: str) -> str:
        """Return a text with this behind it."""
        text = behind(text, LENGTH, f"{self.drafts}: {self.reason}")
        text = behind(text, METHOD, self.method)
        if self.verified:
            counts = (f"{k}:{n}:{accepted}" for k, (n, accepted) in self.verified.items())
            text = behind(text, VERIFIED, ",".join(counts))
        if self.watched != NOTHING_SEEN:
            seen = self.watched
            text = behind(
                text, WATCH, f"{seen.is_low:d},{seen.alarms},{seen.is_paused:d},{seen.pauses}"
            )
        return text

    @classmethod
    def of(cls, parts: Mapping[str, str]) -> Told | None:
        """Return what the parts of a text say; None if nothing."""
        length = _LENGTH.fullmatch(parts.get(LENGTH, ""))
        if length is None:
            return None
        return cls(
            int(length[1]),
            length[2],
            parts.get(METHOD, ""),
            _verified(parts.get(VERIFIED, "")),
            _watched(parts.get(WATCH)),
        )


NOTHING_SEEN = Watched()


def _verified(text: str) -> dict[int, tuple[int, int]]:
    counts = (tuple(map(int, count.split(":"))) for count in text.split(",") if count)
    return {k: (requests, accepted) for k, requests, accepted in counts}


def _watched(text: str | None) -> Watched:
    if text is None:
        return NOTHING_SEEN
    is_low, alarms, is_paused, pauses = map(int, text.split(","))
    return Watched(bool(is_low), alarms, bool(is_paused), pauses)
