"""The scheduler's report of a step to the metrics: K and its reason, acceptance, health flags.

It is appended to the text of a step's graph, see ``step_text.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_ascend_spec.step_text import behind

# Name of the counter of reported steps.
METRIC = "vllm:spec_decode_draft_length_steps"
# Reasons for a step's K, in addition to those of goodput.py.
FIXED, SCHEDULED, SEEDED = "fixed", "scheduled", "seed"
# Reasons for a step without drafts where K is chosen.
REJECTED, COSTLY = "hardly accepted", "does not pay"

# Names of the parts of the text.
LENGTH, METHOD, VERIFIED, WATCH = "K", "M", "V", "W"
_LENGTH = re.compile(r"(\d+): (.+)")


@dataclass(frozen=True)
class Watched:
    """Health flags at the end of a step.

    Attributes:
        is_low: whether drafts are hardly accepted.
        alarms: how often acceptance became low since the last report.
        is_paused: whether drafting is paused because it does not pay.
        pauses: how often drafting was paused since the last report.
    """

    is_low: bool = False
    alarms: int = 0
    is_paused: bool = False
    pauses: int = 0


@dataclass(frozen=True)
class Told:
    """The report of a step.

    Attributes:
        drafts: K, the number of drafts that each request gets in it.
        reason: the reason for this K.
        method: the drafting method.
        verified: by number of drafts of a request, the number of requests and of their accepted
            drafts since the last report.
        watched: health flags.
    """

    drafts: int
    reason: str
    method: str = ""
    verified: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    watched: Watched = field(default_factory=Watched)

    def behind(self, text: str) -> str:
        """Return ``text`` with this report appended."""
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
        """Parse the parts of a text; None if they hold no report."""
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
