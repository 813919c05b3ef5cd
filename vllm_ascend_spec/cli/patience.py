"""A line on the terminal while a command prints nothing for long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SILENCE_S = 1.0
# Moves to the start of the line and erases it.
ERASE = "\r\x1b[K"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a line after :data:`SILENCE_S` seconds, and erase it at the end.

    It goes to stderr if that is a terminal: a file or a pipe gets results and errors only.

    Args:
        what: the command, and what it waits for.
    """
    terminal = sys.stderr
    if not terminal.isatty():
        yield
        return
    is_shown = threading.Event()

    def show() -> None:
        is_shown.set()
        terminal.write(f"{what} …")
        terminal.flush()

    timer = threading.Timer(SILENCE_S, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if is_shown.is_set():
            terminal.write(ERASE)
            terminal.flush()
