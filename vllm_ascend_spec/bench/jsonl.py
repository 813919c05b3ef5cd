"""Read prompts and tasks from files with one JSON object per line; errors name the line."""

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
    """One object of a file, with its position for errors.

    Attributes:
        option: option that named the file.
        path: path of the file.
        number: line number, from 1.
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
        # The line number comes before the problem, not after the path: a long path is cut.
        told = f"line {self.number}: {problem}; valid: lines like {self.shape}"
        return ConfigError(self.option, str(self.path), told)

    def text(self, key: str, default: str | None = None) -> str:
        """Return the value of a key, which must be a string that is not empty.

        Raises:
            ConfigError: it is missing, empty or not a string.
        """
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            said = "is missing" if value is None else "has to be a text that is not empty"
            raise self.wrong(f'"{key}" {said}')
        return value


def read_lines(option: str, path: Path, shape: str) -> list[Line]:
    """Read a file with one JSON object per line; skip empty lines.

    Args:
        option: option that names the file.
        path: path of the file.
        shape: what a line looks like, for errors.

    Raises:
        ConfigError: the file cannot be read or has no lines, or a line is not a JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            option, str(path), f"cannot be read: {reason}; valid: a file of lines like {shape}"
        ) from None
    # Only a newline ends a line: JSON strings may contain other line separators.
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
    """Read prompts, each with a category; other keys of a line are ignored.

    Args:
        option: option that names the file.
        path: path of the file.
        categories: which to take; None for all, in the order of the file.
        count: number of prompts per category; None for all.

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
        option: option that named the prompts.
        prompts: texts.
        most: ``max_model_len``.
        max_tokens: tokens per answer.
        count_tokens: returns the number of tokens of a text.
        limits: for each prompt, its own ``max_tokens``, or None for the common one.

    Raises:
        ConfigError: a prompt with its answer does not fit.
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
