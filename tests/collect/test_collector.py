"""What is written of finished requests, and that serving never waits for it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec import log
from vllm_ascend_spec.collect import collector as module
from vllm_ascend_spec.collect.collector import Collector
from vllm_ascend_spec.collect.folder import CollectedFolder, collected_files
from vllm_ascend_spec.collect.record import Finished
from vllm_ascend_spec.config.collect import Collecting
from vllm_ascend_spec.metrics import collected as metrics

DONE = Finished((1, 2, 3), (4, 5), "stop", "what is asked", "what is answered")
KEYS = ("hf_abcdefghijklmnopqrstuvwxyz", "AKIAABCDEFGHIJKLMNOP")


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts by outcome; warnings are logged anew."""
    log.log_once.cache_clear()
    found: dict[str, int] = {}

    def count(outcome: str, answers: int = 1, num_bytes: int = 0) -> None:
        found[outcome] = found.get(outcome, 0) + answers
        found["bytes"] = found.get("bytes", 0) + num_bytes

    monkeypatch.setattr(module, "count_collected", count)
    return found


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Lines that our loggers print."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(log.PARENT).addHandler(handler)
    yield lines
    logging.getLogger(log.PARENT).removeHandler(handler)


def collecting(folder: Path, **given: Any) -> Collecting:
    values = {"rate": 1.0, "max_bytes": 10**6, "has_text": False, **given}
    return Collecting(folder=folder, **values)


def collect(what: Collecting, *finished: Finished, target: str | None = "abc") -> list[Any]:
    """Return the records that are written of finished requests."""
    made = Collector(what, target)
    made.start()
    for each in finished:
        made.offer(each)
    made.close()
    return records(what.folder)


def records(folder: Path) -> list[Any]:
    text = b"".join(path.read_bytes() for path in collected_files(folder))
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def test_only_token_ids_are_written(tmp_path: Path) -> None:
    assert collect(collecting(tmp_path), DONE) == [
        {
            "target": "abc",
            "prompt_token_ids": [1, 2, 3],
            "token_ids": [4, 5],
            "finish_reason": "stop",
        }
    ]


def test_texts_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    (found,) = collect(collecting(tmp_path, has_text=True), DONE, target=None)
    assert found.pop("prompt_text") == "what is asked"
    assert found.pop("answer_text") == "what is answered"
    assert found["target"] is None


def test_a_record_has_no_room_for_anything_else() -> None:
    """Whoever adds a field here decides about other people's data."""
    assert [field.name for field in fields(Finished)] == [
        "prompt_token_ids",
        "token_ids",
        "finish_reason",
        "prompt_text",
        "answer_text",
    ]


@pytest.mark.parametrize("text", ["\ud83d", "line\nline\u2028line", "问\U0001f600"])
def test_any_text_is_one_line_of_json(text: str, tmp_path: Path) -> None:
    what = collecting(tmp_path, has_text=True)
    (found,) = collect(what, Finished((1,), (2,), "length", text, text))
    assert found["prompt_text"] == found["answer_text"] == text
    assert collected_files(tmp_path)[0].read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("has_text", [True, False])
def test_a_request_with_an_access_key_is_left_out(
    key: str, has_text: bool, tmp_path: Path, counts: dict[str, int]
) -> None:
    asked = Finished((1,), (2,), "stop", f"use {key} for it", "")
    answered = Finished((1,), (2,), "stop", "", f"it is {key}.")
    found = collect(collecting(tmp_path, has_text=has_text), asked, DONE, answered)
    assert len(found) == 1
    assert (counts[metrics.KEY], counts[metrics.WRITTEN]) == (2, 1)


def test_the_texts_of_a_request_are_made_in_the_thread_that_writes(tmp_path: Path) -> None:
    threads = []

    def with_text(finished: Finished) -> Finished:
        threads.append(threading.current_thread())
        return finished

    made = Collector(collecting(tmp_path), "abc", with_text)
    made.start()
    made.offer(DONE)
    made.close()
    assert threads
    assert threading.current_thread() not in threads


def test_the_bound_is_said_once_and_what_is_left_out_is_counted(
    tmp_path: Path, counts: dict[str, int], said: list[str]
) -> None:
    size = len(DONE.line("abc", has_text=False))
    found = collect(collecting(tmp_path, max_bytes=2 * size + 1), *[DONE] * 5)
    assert len(found) == 2
    assert (counts[metrics.WRITTEN], counts[metrics.FULL], counts["bytes"]) == (2, 3, 2 * size)
    (line,) = [text for text in said if "collecting has stopped" in text]
    assert f"holds the {2 * size + 1:,} bytes that additional_config" in line


def test_a_disk_that_refuses_is_said_once_and_tried_again(
    tmp_path: Path,
    counts: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
) -> None:
    append, fails = CollectedFolder.append, True

    def refusing(self: CollectedFolder, lines: Sequence[bytes]) -> int:
        if fails:
            raise OSError(28, "No space left on device")
        return append(self, lines)

    monkeypatch.setattr(CollectedFolder, "append", refusing)
    made = Collector(collecting(tmp_path), "abc")
    made.start()
    for count in (1, 2):
        made.offer(DONE)
        wait_for(lambda: counts.get(metrics.FAILED) == count)  # noqa: B023
    fails = False
    made.offer(DONE)
    made.close()
    assert len(records(tmp_path)) == counts[metrics.WRITTEN] == 1
    (line,) = [text for text in said if "cannot be written" in text]
    assert "No space left on device" in line


def test_a_slow_disk_holds_nobody_up(
    tmp_path: Path, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is bounded by its tokens; the rest is dropped at once, and counted."""
    monkeypatch.setattr(module, "MOST_TOKENS", 10 * len(DONE))
    goes_on = threading.Event()
    append = CollectedFolder.append

    def slow(self: CollectedFolder, lines: Sequence[bytes]) -> int:
        assert goes_on.wait(30)
        return append(self, lines)

    monkeypatch.setattr(CollectedFolder, "append", slow)
    made = Collector(collecting(tmp_path), "abc")
    made.start()
    began = time.perf_counter()
    for _ in range(1000):
        made.offer(DONE)
    assert time.perf_counter() - began < 5
    assert counts[metrics.BUSY] == 990
    goes_on.set()
    wait_for(lambda: counts.get(metrics.WRITTEN) == 10)
    made.offer(DONE)
    made.close()
    assert counts[metrics.WRITTEN] == 11, "there is room again"


def wait_for(is_so: Any) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)
