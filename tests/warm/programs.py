"""The folder of these programs, and the process that they are copied from."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.warm.command import SOCKET

ROOT = Path(__file__).parents[2]
NAMES = ("vllm", "python")
COMMAND = Path(__file__).with_name("command.py")


class Programs:
    """Programs that run in copies of one process, until this process ends.

    Args:
        environment: of that process, whole. A command whose environment differs in what may have
            been read by an import runs in a process of its own.
        modules: what it has imported; by default vLLM.
    """

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        folder = Path(self._folder.name)
        for name in NAMES:
            program = folder / name
            program.write_text(f"#!{sys.executable} -IS\nexec(open({str(COMMAND)!r}).read())\n")
            program.chmod(0o755)
        path = f"{folder}{os.pathsep}{environment['PATH']}"
        # What a shell is given to find them.
        self.variables = {"PATH": path, SOCKET: str(folder / "socket")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm.copies", self.variables[SOCKET], *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**environment, **self.variables},
        )
        atexit.register(self.close)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the process of copies did not start"

    def close(self) -> None:
        """Let the process end; what it has copied goes on."""
        self._process.communicate()
        self._folder.cleanup()
