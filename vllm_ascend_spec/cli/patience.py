"""A line on the terminal while a command is silent for long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SILENCE_S = 1.0
# To the start of the line, and away with what is in it.
ERASE = "\r\x1b[K"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what takes long after :data:`SILENCE_S`; the line is gone at the end.

    Standard error gets it if that is a terminal: a file or a pipe has results and errors alone.

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
