"""What is wrong with a checkpoint, before it is known which option named it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_ascend_spec.errors import CheckpointError

SHOWN = 60


class InvalidCheckpointError(ValueError):
    """A checkpoint cannot be used; the text says what is there and what is valid."""


@contextmanager
def blame(option: str, model: str) -> Iterator[None]:
    """Turn errors about an unusable or unreadable checkpoint into the one that a user sees.

    Raises:
        CheckpointError: naming option and value.
    """
    try:
        yield
    except InvalidCheckpointError as problem:
        raise CheckpointError(option, model, str(problem)) from None
    except OSError as error:
        name = Path(error.filename).name if isinstance(error.filename, str | Path) else "a file"
        why = f"{name} cannot be read: {error.strerror or error}"
        raise CheckpointError(option, model, why) from None


def short_value(value: object) -> str:
    """Return ``repr(value)``, cut if it is long."""
    try:
        text = ascii(value) if isinstance(value, str) else repr(value)
    except ValueError:  # Python refuses to print a number of so many digits
        text = "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def printable(name: str) -> str:
    """Return a tensor's or file's name as it is, on one line and cut if it is long."""
    text = ascii(name)[1:-1]
    return text if len(text) <= SHOWN else f"...{text[3 - SHOWN :]}"


def some(names: Iterable[object], count: int = 2) -> str:
    """Name the first few of ``names`` and say how many more there are."""
    listed = [printable(str(name)) for name in names]
    more = len(listed) - count
    return ", ".join(listed[:count]) + (f" and {more} more" if more > 0 else "")
