"""The option ``--start-timeout``: how long a server that starts may be silent."""

from __future__ import annotations

import argparse

START_TIMEOUT_S = 300.0


def add_start_timeout(parser: argparse.ArgumentParser) -> None:
    """Describe the option ``--start-timeout``."""
    parser.add_argument(
        "--start-timeout",
        type=_seconds,
        default=START_TIMEOUT_S,
        metavar="SECONDS",
        help="give up a server that is not ready and for so long neither writes nor computes; "
        "default: %(default)g",
    )


def _seconds(text: str) -> float:
    """Return the seconds that an option was given.

    Raises:
        ArgumentTypeError: they are none.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: valid: seconds, more than 0")
    return seconds
