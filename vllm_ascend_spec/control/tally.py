"""Counters from one reported step to the next, see ``told.py``."""

from __future__ import annotations

from vllm_ascend_spec.control.acceptance_alarm import AcceptanceAlarm
from vllm_ascend_spec.control.told import Told, Watched


class Tally:
    """Counts verified and accepted drafts, and completes reports with health flags.

    Args:
        method: the drafting method.
        alarm: checks acceptance.
    """

    def __init__(self, method: str, alarm: AcceptanceAlarm) -> None:
        self._method, self._alarm = method, alarm
        self._verified: dict[int, tuple[int, int]] = {}
        self._alarms = self._pauses = 0

    def note(self, drafts: int, accepted: int) -> None:
        """Count a request's drafts and the accepted ones."""
        requests, before = self._verified.get(drafts, (0, 0))
        self._verified[drafts] = requests + 1, before + accepted

    def complete(self, told: Told, is_paused: bool, pauses: int) -> Told:
        """Return a step's report with the counts added, and reset the counts.

        Args:
            told: report with the step's K and its reason.
            is_paused: whether drafting is paused.
            pauses: number of pauses so far.
        """
        alarms = self._alarm.alarms
        watched = Watched(
            self._alarm.is_low, alarms - self._alarms, is_paused, pauses - self._pauses
        )
        verified, self._verified = self._verified, {}
        self._alarms, self._pauses = alarms, pauses
        return Told(told.drafts, told.reason, self._method, verified, watched)
