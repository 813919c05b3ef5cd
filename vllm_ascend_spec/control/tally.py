"""What is counted from one step that is told to the next, see ``told.py``."""

from __future__ import annotations

from vllm_ascend_spec.control.told import Told, Watched
from vllm_ascend_spec.control.watch import Watchdog


class Tally:
    """Counts what became of drafts, and takes up what is watched.

    Args:
        method: the drafting method.
        watchdog: looks at acceptance.
    """

    def __init__(self, method: str, watchdog: Watchdog) -> None:
        self._method, self._watchdog = method, watchdog
        self._verified: dict[int, tuple[int, int]] = {}
        self._alarms = self._pauses = 0

    def note(self, drafts: int, accepted: int) -> None:
        """Take up what became of a request's drafts."""
        requests, before = self._verified.get(drafts, (0, 0))
        self._verified[drafts] = requests + 1, before + accepted

    def complete(self, told: Told, is_paused: bool, pauses: int) -> Told:
        """Return what is told of a step, with what was counted; counting begins anew.

        Args:
            told: its K, and why.
            is_paused: whether drafting pauses.
            pauses: how often it ever did.
        """
        alarms = self._watchdog.alarms
        watched = Watched(
            self._watchdog.is_low, alarms - self._alarms, is_paused, pauses - self._pauses
        )
        verified, self._verified = self._verified, {}
        self._alarms, self._pauses = alarms, pauses
        return Told(told.drafts, told.reason, self._method, verified, watched)
