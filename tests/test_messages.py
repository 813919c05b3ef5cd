"""Messages of one line, whatever a person gives."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.messages import LONGEST, LONGEST_OPTION, one_line, short_repr

PROBLEM = "valid: a whole number from 1 to 15"


class Unprintable:
    def __repr__(self) -> str:
        raise OSError("no repr today")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


HARD = {
    "long text": "x" * 10_000,
    "long key": {"k" * 10_000: 1},
    "long list": [*range(10_000)],
    "deep list": nested(sys.getrecursionlimit() * 2),
    "lines": "a\nb\r\nc\u2028d\x00e\ud800",
    "many digits": 10**10_000,
    "no repr": Unprintable(),
    "lists of objects": [Unprintable()] * 9,
}


@pytest.mark.parametrize("value", [3, "eagel", None, True, 2.5, [1, 2], {"b": 1, "a": "x  y"}])
def test_short_values_are_shown_whole(value: Any) -> None:
    assert one_line("option", value, PROBLEM) == f"option={value!r}: {PROBLEM}"


@pytest.mark.parametrize("value", HARD.values(), ids=HARD)
@pytest.mark.parametrize("error", [ConfigError, CheckpointError])
def test_any_value_makes_one_line(error: type[ConfigError], value: Any) -> None:
    message = str(error("speculative_config.num_speculative_tokens", value, PROBLEM))
    assert len(message) <= LONGEST
    assert message.isprintable()
    assert message.startswith("speculative_config.num_speculative_tokens=")
    assert message.endswith(f": {PROBLEM}")


def test_a_path_keeps_both_its_ends() -> None:
    shown = short_repr("/data/" + "deep/" * 100 + "eagle", 60)
    assert 50 < len(shown) <= 60
    assert shown.startswith("'/data/deep/")
    assert shown.endswith("/eagle'")


def test_option_and_problem_are_cut_too() -> None:
    message = one_line("o" * 1000, "v" * 1000, "first " + "p" * 1000)
    assert len(message) == LONGEST
    assert message.index("=") == LONGEST_OPTION
    assert ": first ppp" in message
    assert message.endswith("p…")


def test_lines_of_a_problem_are_joined() -> None:
    assert one_line("o", 1, "one\n  two\tthree") == "o=1: one two three"


def test_line_with_the_command_before_it_has_300_characters() -> None:
    names = ("vllm-ascend-spec check: error: ", f"{CheckpointError.__module__}.CheckpointError: ")
    assert LONGEST + max(map(len, names)) <= 300


def test_error_survives_pickling() -> None:
    error = ConfigError("option", ["value"], PROBLEM)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.option, copy.value) == (str(error), "option", ["value"])
