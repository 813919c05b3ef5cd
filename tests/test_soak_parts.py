"""The parts of a soak without a server: what it asks, what it takes for wrong, what it measures."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e import soak as soaks
from tests.e2e import soak_kinds as kinds
from tests.e2e.soak import Soak
from tests.e2e.soak_kinds import KINDS, Answer, Reference, Request
from tests.e2e.usage import Use, memory_of, more_descriptors, told, uses_of

LINE = "a line of text, and the same line of text"
REFERENCE = Reference("def f(", list(range(40)), LINE, list(range(40)))


class Scripted(Request):
    """A request that gets a given answer."""

    answer: Answer

    async def ask(self, leave_after: int | None = None, **options: Any) -> Answer:
        self.__dict__["asked"] = options
        length = options["max_tokens"]
        return Answer(self.answer.token_ids[:length], *list(vars(self.answer).values())[1:])


def outcome(kind: str, seed: int = 0, **answer: Any) -> str | None:
    """Return what a kind of request says to an answer."""
    right = {"token_ids": REFERENCE.token_ids, "text": "", "finish_reason": None, "num_logprobs": 0}
    request = Scripted(None, "model", random.Random(seed), REFERENCE, 3)  # type: ignore[arg-type]
    request.__dict__["answer"] = Answer(**{**right, **answer})
    return asyncio.run(KINDS[kind](request))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["greedy", "limited", "drawn"])
def test_a_token_is_wrong(kind: str) -> None:
    assert outcome(kind) is None
    wrong = outcome(kind, token_ids=[7, *REFERENCE.token_ids[1:]])
    assert wrong is not None
    assert "instead of" in wrong


def test_a_sampled_answer_is_too_short() -> None:
    text = outcome("sampled", token_ids=[])
    assert text is not None
    assert text.startswith("0 tokens")


def test_a_stop_string_is_ignored() -> None:
    assert outcome("stopped", text=REFERENCE.text, finish_reason="length") is not None


@pytest.mark.parametrize(
    ("text", "reason", "is_right"),
    [("abc = 12", "stop", True), ("abc = 12", "length", False), ("abc =", "stop", False)],
)
def test_structured_output(text: str, reason: str, is_right: bool) -> None:
    assert (outcome("structured", text=text, finish_reason=reason) is None) is is_right


def test_a_bad_request_is_answered() -> None:
    class Everything:
        """A server that refuses nothing."""

        completions = property(lambda self: self)

        async def create(self, **options: Any) -> object:
            return options

    request = Request(Everything(), "model", random.Random(0), REFERENCE, 3)  # type: ignore[arg-type]
    problem = asyncio.run(kinds.refused(request))  # type: ignore[arg-type]
    assert problem is not None
    assert problem.startswith("no error about")


def test_a_seed_says_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []

    async def note(request: Request) -> str | None:
        asked.append((request.reference.prompt, request.random.random()))
        return "wrong" if len(asked) == 1 else None

    def run(seed: int) -> list[tuple[str, float]]:
        asked.clear()
        soak = Soak("http://127.0.0.1:1", "model", [REFERENCE, REFERENCE], 3)
        soak.run(60, seed)
        assert soak.done == {"note": soaks.CLIENTS * 5}, "no more than were allowed"
        assert soak.problems == ["note: wrong"]
        return list(asked)

    monkeypatch.setattr(soaks, "KINDS", {"note": note})
    monkeypatch.setattr(soaks, "MOST_REQUESTS", 5)
    assert run(1) == run(1) != run(2)


def test_what_a_child_holds_counts() -> None:
    code = (
        "import os, sys\n"
        "print('there', flush=True)\n"
        "sys.stdin.readline()\n"
        "held = b'1' * (64 << 20), os.open('/', os.O_RDONLY)\n"
        "print('there', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        before = uses_of(os.getpid())
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        after = uses_of(os.getpid())
        child.stdin.close()
    # Half of what the child takes: this process may give some back meanwhile.
    assert memory_of(after) - memory_of(before) >= 32 << 20
    (name,) = (name for name in more_descriptors(before, after) if str(child.pid) in name)
    assert more_descriptors(before, after)[name] == 1
    assert "MB, " in told(before, after)


def test_a_process_that_came_later_is_no_leak_of_another() -> None:
    before, after = {1: Use("a", 5, 3)}, {1: Use("a", 6, 2), 2: Use("b", 7, 4)}
    assert more_descriptors(before, after) == {"b 2": 4}
    assert told(before, after) == "a 0.0 -> 0.0 MB, 3 -> 2 descriptors"


@pytest.mark.parametrize("given", [None, "7"])
def test_how_long(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOAK_SECONDS", raising=False)
    if given is not None:
        monkeypatch.setenv("SOAK_SECONDS", given)
    assert soaks.seconds_of(30) == (30 if given is None else 7)
