"""A line of progress is rewritten in place on a terminal, and is nowhere else."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

CODE = """
from vllm_ascend_spec.bench.progress import Progress, tell
with Progress(2) as progress:
    progress.next("round 1")
    tell("a result")
    progress.next("round 2")
with Progress() as progress:
    progress.next("loading none")
    progress.refresh()
"""


def test_one_line_on_a_terminal() -> None:
    top, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=terminal, stderr=terminal):
        os.close(terminal)
        written = b""
        # At the end of its last process a terminal is an error.
        while True:
            try:
                written += os.read(top, 4096)
            except OSError:
                break
    os.close(top)
    text = written.decode()
    for words in ("\rround 1 0/2 [", "\rround 2 1/2 [", "\rloading none ["):
        assert words in text
    # The result stands by itself; the line was taken away for it, and at the end.
    assert text.count("\n") == 1
    assert "\ra result\r\n" in text
    assert text.endswith(" \r")


def test_nothing_in_a_pipe_but_results() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("a result\n", "")
