"""A file of answers by prompt, which a second start goes on with.

Its first line says how the answers were made; each further one is an answer. A process that is
killed leaves a torn last line at most, which the next start cuts off.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.atomic import append_line, cut_torn_line


@dataclass(frozen=True)
class Answer:
    """The target's answer to one prompt.

    Attributes:
        id: the prompt's.
        prompt_token_ids: what the target was given.
        token_ids: what it answered, its end token included.
        finish_reason: vLLM's, ``stop`` or ``length``.
    """

    id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: str

    def all_token_ids(self) -> list[int]:
        """Return prompt and answer."""
        return [*self.prompt_token_ids, *self.token_ids]

    def loss_mask(self) -> list[int]:
        """Return 1 for each token of the answer, 0 for the prompt's."""
        return [0] * len(self.prompt_token_ids) + [1] * len(self.token_ids)


class AnswerFile:
    """The file, open for writing.

    Args:
        path: of the file.
        found: ids of the answers in it.
    """

    def __init__(self, path: Path, found: set[str]) -> None:
        self._path = path
        self._found = found

    def __contains__(self, prompt_id: str) -> bool:
        return prompt_id in self._found

    def __len__(self) -> int:
        return len(self._found)

    def append(self, answers: Iterable[Answer]) -> None:
        """Write answers; they are on the disk when this returns."""
        new = {answer.id: answer for answer in answers if answer.id not in self._found}
        if new:
            append_line(self._path, "\n".join(json.dumps(asdict(each)) for each in new.values()))
            self._found.update(new)


def read_answers(option: str, path: Path) -> Iterator[Answer]:
    """Yield the answers of a file; a torn last line is left out.

    Args:
        option: option that named the file's folder, for errors.
        path: of the file.

    Raises:
        ConfigError: a line is damaged.
    """
    for number, line in _lines(path):
        if number > 1:
            yield _parse(option, path, number, line)


@contextmanager
def open_answers(option: str, path: Path, made_by: Mapping[str, Any]) -> Iterator[AnswerFile]:
    """Open a file for writing, new or begun; only one process may.

    Args:
        option: option that named the file's folder, for errors.
        path: of the file.
        made_by: what the answers depend on, such as the target and the sampling parameters; values
            that JSON can hold.

    Raises:
        ConfigError: the file's answers were made otherwise, or a line is damaged, or another
            process writes to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            problem = "another process writes answers there; valid: wait for its end"
            raise ConfigError(option, str(path), problem) from None
        cut_torn_line(path)
        _check_header(option, path, json.loads(json.dumps(made_by)))
        yield AnswerFile(path, {answer.id for answer in read_answers(option, path)})


def _check_header(option: str, path: Path, made_by: dict[str, Any]) -> None:
    """Write the first line, or compare it."""
    if path.stat().st_size == 0:
        append_line(path, json.dumps({"made_by": made_by}))
        return
    found = _object(option, path, *next(_lines(path))).get("made_by")
    if not isinstance(found, dict):
        problem = "line 1 does not say how answers were made; valid: a file of answers, or none"
        raise ConfigError(option, str(path), problem)
    for name in sorted({*found, *made_by}):
        if found.get(name) != made_by.get(name):
            problem = (
                f"its answers were made with {name} {found.get(name)!r}, not "
                f"{made_by.get(name)!r}; valid: another folder"
            )
            raise ConfigError(option, str(path), problem)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each whole line."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if line.endswith("\n"):
                yield number, line


def _parse(option: str, path: Path, number: int, line: str) -> Answer:
    values = _object(option, path, number, line)
    try:
        prompt, answer = (tuple(map(int, values[k])) for k in ("prompt_token_ids", "token_ids"))
        return Answer(str(values["id"]), prompt, answer, str(values["finish_reason"]))
    except (KeyError, TypeError, ValueError):
        raise ConfigError(option, str(path), f"line {number} is no answer; delete it") from None


def _object(option: str, path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(option, str(path), f"line {number} is damaged; delete it")
    return found
