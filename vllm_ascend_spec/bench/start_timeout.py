"""The option ``--start-timeout``: how long a starting server may be silent."""

from __future__ import annotations

import argparse

START_TIMEOUT_S = 300.0


def add_start_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--start-timeout`` to a parser."""
    parser.add_argument(
        "--start-timeout",
        type=_seconds,
        default=START_TIMEOUT_S,
        metavar="SECONDS",
        help="give a server up once it has neither logged nor computed for this long before it is "
        "ready; default: %(default)g",
    )


def _seconds(text: str) -> float:
    """Return the seconds given as the option's value.

    Raises:
        ArgumentTypeError: the value is not a positive number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: valid: seconds, more than 0")
    return seconds
