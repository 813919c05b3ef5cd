"""The alarm says once that drafts are hardly accepted."""

from __future__ import annotations

import logging

import pytest

from vllm_ascend_spec.control import acceptance_alarm
from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.acceptance_alarm import AcceptanceAlarm


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    said: list[tuple[int, str]] = []
    monkeypatch.setattr(
        acceptance_alarm.logger, "log", lambda level, text, *args: said.append((level, text % args))
    )
    return said


def steps(dog: AcceptanceAlarm, acceptance: RecentAcceptance, accepted: int, times: int) -> None:
    for _ in range(times):
        acceptance.note(3, accepted)
        dog.check()


def test_it_says_so_once_and_once_that_it_is_over(lines: list[tuple[int, str]]) -> None:
    acceptance = RecentAcceptance(3)
    dog = AcceptanceAlarm(acceptance, "Do this.")
    steps(dog, acceptance, 2, 400)
    assert not lines
    steps(dog, acceptance, 0, 2000)
    ((level, text),) = lines
    assert level == logging.WARNING
    assert text.startswith("Drafts are hardly accepted: ")
    assert text.endswith("latest first drafts. Do this.")
    steps(dog, acceptance, 1, 2000)
    assert [level for level, _ in lines] == [logging.WARNING, logging.INFO]
    steps(dog, acceptance, 0, 2000)
    assert len(lines) == 3


def test_it_waits_until_enough_is_known(lines: list[tuple[int, str]]) -> None:
    acceptance = RecentAcceptance(3)
    dog = AcceptanceAlarm(acceptance, "")
    steps(dog, acceptance, 0, 100)
    assert not lines


def test_one_draft_in_ten_is_no_reason(lines: list[tuple[int, str]]) -> None:
    acceptance = RecentAcceptance(3)
    dog = AcceptanceAlarm(acceptance, "")
    for step in range(4000):
        steps(dog, acceptance, int(step % 10 == 0), 1)
    assert not lines
