"""Tasks: how an answer is scored, and what is no task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import ZOO
from vllm_ascend_spec.bench.tasks import Task, read_tasks
from vllm_ascend_spec.errors import ConfigError

PROMPT = {"prompt": "2 + 2 =", "expected": "4"}


@pytest.mark.parametrize(
    ("scoring", "expected", "right", "wrong"),
    [
        ("exact", "4", " 4\n", "44"),
        ("contains", "4", "it is 4.", "four"),
        ("regex", r"^ ?(4|four)\b", " four", "it is 4"),
        ("choice", " yes", " yes", "yes"),
    ],
)
def test_scores(scoring: str, expected: str, right: str, wrong: str) -> None:
    task = Task(1, "?", expected, scoring)
    assert (task.score(right), task.score(wrong)) == (1.0, 0.0)


def write(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_tasks_are_read(tmp_path: Path) -> None:
    choice = {"prompt": "?", "expected": "b", "scoring": "choice", "choices": ["a", "b"]}
    long = {**PROMPT, "max_tokens": 3, "stop": ["\n"], "category": "sums"}
    assert read_tasks("--tasks", write(tmp_path, long, choice)) == [
        Task(1, "2 + 2 =", "4", stop=("\n",), max_tokens=3),
        Task(2, "?", "b", "choice", ("a", "b")),
    ]


def test_a_task_has_its_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"\n\n{json.dumps(PROMPT)}\n\n{json.dumps(PROMPT)}\n")
    assert [task.line for task in read_tasks("--tasks", path)] == [3, 5]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"expected": ""}, '"expected" has to be a text'),
        ({"scorring": "exact"}, '"scorring" is no key'),
        ({"scoring": "rouge"}, "there are exact, contains, regex, choice"),
        ({"scoring": "regex", "expected": "("}, "is no regular expression"),
        ({"scoring": "choice"}, "belong together"),
        ({"choices": ["4"]}, "belong together"),
        ({"scoring": "choice", "choices": ["5"]}, "none of the"),
        ({"max_tokens": 0}, "number of 1 or more"),
        ({"max_tokens": True}, "number of 1 or more"),
        ({"stop": "x"}, "list of texts"),
    ],
)
def test_what_is_no_task(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, PROMPT, {**PROMPT, **changes})
    with pytest.raises(ConfigError) as error:
        read_tasks("--tasks", path)
    assert problem in str(error.value)
    assert "line 2" in str(error.value)


def test_the_zoo_has_tasks_of_every_scoring() -> None:
    tasks = read_tasks("--tasks", ZOO / "tasks.jsonl")
    assert {task.scoring for task in tasks} == {"exact", "contains", "regex", "choice"}
    assert len({task.prompt for task in tasks}) == len(tasks) == 32
