"""Read tasks that have a right answer from a file, and score answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_ascend_spec.bench.jsonl import Line, read_lines

SHAPE = '{"prompt": "2 + 2 =", "expected": "4", "scoring": "contains"}'
KEYS = ("category", "choices", "expected", "max_tokens", "prompt", "scoring", "stop")
EXACT, CONTAINS, REGEX, CHOICE = "exact", "contains", "regex", "choice"


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        line: line number in the file, from 1.
        prompt: the prompt.
        expected: the right answer, or a regular expression that matches right answers.
        scoring: a key of :data:`SCORINGS`.
        choices: the only possible answers, for ``choice``; a grammar restricts the model to them.
        stop: texts that end the answer and are not part of it.
        max_tokens: limit of the answer; None for the command's.
    """

    line: int
    prompt: str
    expected: str
    scoring: str = EXACT
    choices: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None

    def score(self, answer: str) -> float:
        """Return 1 for a right answer, else 0."""
        return float(SCORINGS[self.scoring](answer, self.expected))


def _is_found(answer: str, expected: str) -> bool:
    return re.search(expected, answer) is not None


# ``exact`` and ``contains`` ignore spaces around an answer.
SCORINGS: dict[str, Callable[[str, str], bool]] = {
    EXACT: lambda answer, expected: answer.strip() == expected.strip(),
    CONTAINS: lambda answer, expected: expected in answer,
    REGEX: _is_found,
    CHOICE: lambda answer, expected: answer == expected,
}


def read_tasks(option: str, path: Path) -> list[Task]:
    """Read a file of tasks.

    Args:
        option: option that names the file.
        path: path of the file.

    Raises:
        ConfigError: a line is not a task.
    """
    return [_task(line) for line in read_lines(option, path, SHAPE)]


def _task(line: Line) -> Task:
    for key in line.values:
        if key not in KEYS:
            raise line.wrong(f'"{key}" is no key of a task; there are {", ".join(KEYS)}')
    scoring, expected = line.text("scoring", EXACT), line.text("expected")
    if scoring not in SCORINGS:
        raise line.wrong(f'"scoring" is "{scoring}"; there are {", ".join(SCORINGS)}')
    if scoring == REGEX:
        try:
            re.compile(expected)
        except re.error as error:
            raise line.wrong(f'"expected" is no regular expression: {error}') from None
    choices = _texts(line, "choices")
    if (scoring == CHOICE) != bool(choices):
        raise line.wrong('"choices" and "scoring": "choice" belong together')
    if choices and expected not in choices:
        raise line.wrong('"expected" is none of the "choices"')
    most = line.values.get("max_tokens")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise line.wrong('"max_tokens" has to be a number of 1 or more')
    prompt, stop = line.text("prompt"), _texts(line, "stop")
    return Task(line.number, prompt, expected, scoring, choices, stop, most)


def _texts(line: Line, key: str) -> tuple[str, ...]:
    found = line.values.get(key, [])
    if not isinstance(found, list) or not all(isinstance(text, str) and text for text in found):
        raise line.wrong(f'"{key}" has to be a list of texts')
    return tuple(found)


def mean(scores: Sequence[float]) -> float:
    """Return the mean of some scores, at least one."""
    return sum(scores) / len(scores)
