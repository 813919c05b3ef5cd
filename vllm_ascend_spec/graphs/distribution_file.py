"""Read histograms and step times from text files with rows of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.batch_distribution import BatchDistribution

HISTOGRAM = "rows `requests count` or `requests count K`, e.g. `8 1200`"
STEP_TIMES = "rows `tokens milliseconds`, e.g. `64 18.5`"
BETWEEN = re.compile(r"[,;\s]+")


def read_histogram(text: str, name: str, max_num_seqs: int) -> BatchDistribution:
    """Return the load of a file of counts; rows of the same batch add up.

    Numbers are separated by commas, semicolons or blanks; ``#`` begins a comment, and a first row
    without a number in it is a heading. The third number, K, is in every row or in none.

    Args:
        text: text of the file.
        name: name of the file, for errors.
        max_num_seqs: most requests that the engine runs at once.

    Raises:
        ConfigError: the text is invalid; names the line and what was expected.
    """
    by_k: dict[int | None, list[float]] = {}
    width = 0
    for line, fields in _rows(text):
        where = f"{name}, line {line}"
        row = _numbers(fields, where, HISTOGRAM, 2, 3)
        if width and len(row) != width:
            problem = f"has {len(row)} numbers, the rows before {width}"
            raise _refused(where, fields, problem, HISTOGRAM)
        width = len(row)
        requests, count = row[:2]
        if not requests.is_integer() or not 1 <= requests <= max_num_seqs:
            problem = f"requests have to be 1 to max_num_seqs={max_num_seqs}"
            raise _refused(where, fields, problem, HISTOGRAM)
        if count < 0 or (width == 3 and (row[2] < 0 or not row[2].is_integer())):
            raise _refused(where, fields, "a count and a K are 0 or more", HISTOGRAM)
        counts = by_k.setdefault(int(row[2]) if width == 3 else None, [0.0] * max_num_seqs)
        counts[int(requests) - 1] += count
    if not by_k:
        raise ConfigError("load", name, f"has no rows; expected {HISTOGRAM}")
    if width == 2:
        return BatchDistribution(name, tuple(by_k[None]))
    return BatchDistribution(name, by_k={k: tuple(row) for k, row in by_k.items() if k is not None})


def read_step_times(text: str, name: str) -> list[tuple[int, float]]:
    """Return the tokens and milliseconds of measured steps from a file.

    Args:
        text: text of the file.
        name: name of the file, for errors.

    Raises:
        ConfigError: the text is invalid; names the line and what was expected.
    """
    found = []
    for line, fields in _rows(text):
        tokens, time = _numbers(fields, f"{name}, line {line}", STEP_TIMES, 2, 2)
        if not tokens.is_integer() or tokens < 1 or time <= 0:
            where = f"{name}, line {line}"
            raise _refused(where, fields, "tokens are 1 or more and times above 0", STEP_TIMES)
        found.append((int(tokens), time))
    if not found:
        raise ConfigError("step_times", name, f"has no rows; expected {STEP_TIMES}")
    return found


def read_text(option: str, path: Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigError(option, str(path), f"cannot be read: {why}") from None


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line, without empty lines, comments and a heading."""
    first = True
    for number, line in enumerate(text.splitlines(), 1):
        fields = [field for field in BETWEEN.split(line.partition("#")[0]) if field]
        if not fields:
            continue
        if not (first and not any(map(_is_number, fields))):
            yield number, fields
        first = False


def _numbers(
    fields: Sequence[str], where: str, expected: str, least: int, most: int
) -> list[float]:
    if not least <= len(fields) <= most:
        raise _refused(where, fields, f"has {len(fields)} fields", expected)
    for field in fields:
        if not _is_number(field):
            raise _refused(where, fields, f"{field!r} is no number", expected)
    return [float(field) for field in fields]


def _is_number(field: str) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def _refused(where: str, fields: Sequence[str], problem: str, expected: str) -> ConfigError:
    return ConfigError(where, " ".join(fields), f"{problem}; expected {expected}")
