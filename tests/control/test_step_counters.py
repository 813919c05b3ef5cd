"""What is counted between two reports is reported once."""

from __future__ import annotations

from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.acceptance_alarm import AcceptanceAlarm
from vllm_ascend_spec.control.step_counters import StepCounters
from vllm_ascend_spec.step_report import FIXED, StepReport, TreeCounts


def filled(counters: StepCounters, is_paused: bool = False, pauses: int = 0) -> StepReport:
    report = StepReport(k=3, k_reason=FIXED)
    counters.fill(report, is_paused, pauses)
    return report


def test_requests_are_added_up_by_their_drafts() -> None:
    counters = StepCounters("ngram", AcceptanceAlarm(RecentAcceptance(3), ""), longest_chain=3)
    for drafts, accepted in ((3, 2), (1, 0), (3, 3)):
        counters.note(drafts, accepted, None)
    verified = {3: (2, 5), 1: (1, 0)}
    assert filled(counters) == StepReport(k=3, k_reason=FIXED, method="ngram", verified=verified)
    assert filled(counters) == StepReport(k=3, k_reason=FIXED, method="ngram")


def test_trees_are_counted_apart() -> None:
    """More drafts than the longest chain; of some it is not known where the path went."""
    counters = StepCounters("eagle3", AcceptanceAlarm(RecentAcceptance(9), ""), longest_chain=3)
    for drafts, accepted, on_chain in ((9, 3, 1), (9, 2, 2), (9, 4, None), (3, 2, 2)):
        counters.note(drafts, accepted, on_chain)
    assert filled(counters).trees == TreeCounts(verified=3, drafts=27, accepted=9, known=2, left=1)
    assert filled(counters).trees is None


def test_an_alarm_and_a_pause_are_reported_once_and_their_states_always() -> None:
    acceptance = RecentAcceptance(3)
    alarm = AcceptanceAlarm(acceptance, "")
    counters = StepCounters("eagle", alarm, longest_chain=3)
    for _ in range(2000):
        acceptance.note(3, 0)
        alarm.check()

    def flags(is_paused: bool, pauses: int) -> tuple[bool, int, bool, int]:
        report = filled(counters, is_paused, pauses)
        return report.is_low, report.alarms, report.is_paused, report.pauses

    assert [flags(True, 2), flags(True, 2)] == [(True, 1, True, 2), (True, 0, True, 0)]
    assert flags(False, 3) == (True, 0, False, 1)
