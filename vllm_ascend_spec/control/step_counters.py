"""Count verified and accepted drafts between two reports of a step."""

from __future__ import annotations

from vllm_ascend_spec.control.acceptance_alarm import AcceptanceAlarm
from vllm_ascend_spec.step_report import StepReport, TreeCounts


class StepCounters:
    """Counts, and fills the counts and the health flags in a report.

    Args:
        method: the drafting method.
        alarm: checks acceptance.
        longest_chain: more drafts than this are a tree.
    """

    def __init__(self, method: str, alarm: AcceptanceAlarm, longest_chain: int) -> None:
        self._method, self._alarm = method, alarm
        self._verified: dict[int, tuple[int, int]] = {}
        self._alarms = self._pauses = 0
        self._longest_chain = longest_chain
        self._trees: TreeCounts | None = None

    def note(self, drafts: int, accepted: int, on_chain: int | None) -> None:
        """Count a request's drafts and the accepted ones.

        Args:
            drafts: number of drafts.
            accepted: number of accepted ones.
            on_chain: how many of these are the first drafts; None if not known.
        """
        if drafts > self._longest_chain:
            self._trees = self._trees or TreeCounts()
            self._trees.note(drafts, accepted, on_chain)
        requests, before = self._verified.get(drafts, (0, 0))
        self._verified[drafts] = requests + 1, before + accepted

    def fill(self, report: StepReport, is_paused: bool, pauses: int) -> None:
        """Fill the counts in a report, and begin to count anew.

        Args:
            report: changed in place.
            is_paused: whether drafting is paused.
            pauses: number of pauses so far.
        """
        alarms = self._alarm.alarms
        report.method = self._method
        report.verified, self._verified = self._verified, {}
        report.trees, self._trees = self._trees, None
        report.is_low, report.alarms = self._alarm.is_low, alarms - self._alarms
        report.is_paused, report.pauses = is_paused, pauses - self._pauses
        self._alarms, self._pauses = alarms, pauses
