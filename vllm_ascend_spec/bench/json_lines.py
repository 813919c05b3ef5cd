"""Files with one JSON object a line, as prompts and tasks are given; every error names its line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError, did_you_mean

SHAPE = '{"category": "code", "prompt": "def f("}'


@dataclass(frozen=True)
class Line:
    """One object of a file, and where it stands, for errors.

    Attributes:
        option: that named the file.
        path: of the file.
        number: of the line, from 1.
        values: the object.
        shape: what a line looks like.
    """

    option: str
    path: Path
    number: int
    values: dict[str, Any]
    shape: str

    def wrong(self, problem: str) -> ConfigError:
        """Return an error about this line."""
        # Before the problem: a long path is cut.
        told = f"line {self.number}: {problem}; valid: lines like {self.shape}"
        return ConfigError(self.option, str(self.path), told)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that may not be empty.

        Raises:
            ConfigError: it is missing, empty or no text.
        """
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            said = "is missing" if value is None else "has to be a text that is not empty"
            raise self.wrong(f'"{key}" {said}')
        return value


def read_lines(option: str, path: Path, shape: str) -> list[Line]:
    """Read a file of one JSON object a line; empty lines do not count.

    Args:
        option: that names the file.
        path: of the file.
        shape: what a line looks like, for errors.

    Raises:
        ConfigError: it cannot be read, has no lines, or one is no JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            option, str(path), f"cannot be read: {reason}; valid: a file of lines like {shape}"
        ) from None
    # Only these end a line: JSON may have others in its texts.
    numbered = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not numbered:
        raise ConfigError(option, str(path), f"has no lines; valid: lines like {shape}")
    return [
        Line(option, path, n, _parse(option, path, n, line, shape), shape) for n, line in numbered
    ]


def _parse(option: str, path: Path, number: int, line: str, shape: str) -> dict[str, Any]:
    told = Line(option, path, number, {}, shape)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise told.wrong(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise told.wrong("is not a JSON object")
    return found


def read_prompts(
    option: str, path: Path, categories: Sequence[str] | None = None, count: int | None = None
) -> dict[str, list[str]]:
    """Read prompts, each with a category; other keys of a line are the reader's own.

    Args:
        option: that names the file.
        path: of the file.
        categories: which to take; None for all, in the order of the file.
        count: how many of each; None for all.

    Returns:
        Prompts by category.

    Raises:
        ConfigError: a line cannot be used, or there is no such category.
    """
    found: dict[str, list[str]] = {}
    for line in read_lines(option, path, SHAPE):
        found.setdefault(line.text("category"), []).append(line.text("prompt"))
    for name in categories or ():
        if name not in found:
            problem = f"{did_you_mean(name, found)}valid: {', '.join(found)}"
            raise ConfigError("--categories", name, problem)
    return {name: found[name][:count] for name in categories or found}


def check_lengths(
    option: str,
    prompts: Sequence[str],
    most: int,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    limits: Sequence[int | None] | None = None,
) -> None:
    """Check that prompts and their answers fit into a request.

    Args:
        option: that named the prompts.
        prompts: texts.
        most: ``max_model_len``.
        max_tokens: of an answer.
        count_tokens: of a text.
        limits: of each prompt's own answer instead of ``max_tokens``, where it is not None.

    Raises:
        ConfigError: one does not fit.
    """
    for prompt, own in zip(prompts, limits or [None] * len(prompts), strict=True):
        tokens = count_tokens(prompt)
        answer, said_by = (max_tokens, "--max-tokens") if own is None else (own, "its max_tokens")
        if tokens + answer > most:
            raise ConfigError(
                option,
                f"{prompt[:40]}…",
                f"has {tokens} tokens, which with {answer} ({said_by}) are more than "
                f"--max-model-len {most}",
            )
