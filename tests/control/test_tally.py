"""What is counted between two steps that are told is told once."""

from __future__ import annotations

from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.acceptance_alarm import AcceptanceAlarm
from vllm_ascend_spec.control.tally import Tally
from vllm_ascend_spec.control.told import FIXED, Told, Watched


def test_requests_are_added_up_by_their_drafts() -> None:
    tally = Tally("ngram", AcceptanceAlarm(RecentAcceptance(3), ""))
    for drafts, accepted in ((3, 2), (1, 0), (3, 3)):
        tally.note(drafts, accepted)
    told = tally.complete(Told(3, FIXED), False, 0)
    assert told == Told(3, FIXED, "ngram", {3: (2, 5), 1: (1, 0)})
    assert tally.complete(Told(3, FIXED), False, 0) == Told(3, FIXED, "ngram")


def test_an_alarm_and_a_pause_are_told_once_and_their_states_always() -> None:
    acceptance = RecentAcceptance(3)
    dog = AcceptanceAlarm(acceptance, "")
    tally = Tally("eagle", dog)
    for _ in range(2000):
        acceptance.note(3, 0)
        dog.look()
    found = [tally.complete(Told(0, FIXED), True, 2).watched for _ in range(2)]
    assert found == [Watched(True, 1, True, 2), Watched(True, 0, True, 0)]
    assert tally.complete(Told(3, FIXED), False, 3).watched == Watched(True, 0, False, 1)
