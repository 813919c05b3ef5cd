"""Start a real ``vllm serve`` process, wait until it is ready, and stop it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.signs_of_life import SignsOfLife
from vllm_ascend_spec.bench.start_timeout import START_TIMEOUT_S
from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.versions import vllm_program

STOP_TIMEOUT_S = 30.0
# A failed engine logs the cause before the 60 lines in which vLLM's API server reports the failure.
LOG_TAIL_LINES = 100


class ServerError(AscendSpecError, RuntimeError):
    """The server did not start; the message ends with its log."""


def stop_servers_on_sigterm() -> None:
    """Make SIGTERM unwind this process like an exception, so that its servers are stopped too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


# Linux gives ports from 32768 on to every connection and to whoever binds to port 0.
FIRST_PORT, PORTS_END = 10_000, 32_768


def free_port() -> int:
    """Return a port that nobody uses, and that the system gives to no other process meanwhile."""
    while True:
        # Not from `random`: processes that seed it alike would try the same ports.
        port = FIRST_PORT + secrets.randbelow(PORTS_END - FIRST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


class Server:
    """A ``vllm serve`` process on a free port; use it as a context manager.

    Args:
        model: the target's folder.
        speculative_config: goes to ``--speculative-config``; None serves without speculation.
        arguments: more arguments of ``vllm serve``.
        environment: added to this process's environment; None removes a variable.
        title: name on a terminal while it loads.
        start_timeout_s: seconds without any sign of life, after which a start is given up.
        launcher: command that starts the server of another environment, including its model; None
            takes this one's.
    """

    def __init__(
        self,
        model: str,
        speculative_config: Mapping[str, Any] | None = None,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str | None] | None = None,
        title: str = "a server",
        start_timeout_s: float = START_TIMEOUT_S,
        launcher: Sequence[str] | None = None,
    ) -> None:
        self.port = free_port()
        launcher = launcher or [vllm_program(), "serve", model]
        self.command = [*launcher, "--port", str(self.port), *arguments]
        if speculative_config is not None:
            self.command += ["--speculative-config", json.dumps(speculative_config)]
        merged = {**os.environ, **(environment or {})}
        self.environment = {name: value for name, value in merged.items() if value is not None}
        self.title = title
        self.start_timeout_s = start_timeout_s
        self.start_seconds = 0.0
        handle, name = tempfile.mkstemp(prefix="vllm-serve-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        weakref.finalize(self, self._log.unlink, missing_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Root of the server, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Id of the running process."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def log_tail(self) -> str:
        """Return the last lines of the server's output, without secrets: for an error."""
        lines = redact(self.log_text(), self.command, self.environment).splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:]) or "(it wrote nothing)"

    def log_text(self) -> str:
        """Return all of the server's output."""
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Server:
        started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, env=self.environment
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - started
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait(self) -> None:
        """Wait until the server answers.

        Raises:
            ServerError: it ended, or has given no sign of life for too long.
        """
        assert self._process is not None
        life = SignsOfLife(self.pid, self._log, self.start_timeout_s)
        with Progress() as progress:
            progress.next(f"loading {self.title}")
            while self._process.poll() is None:
                if self.is_healthy():
                    return
                silent_s = life.silent_s()
                if silent_s > self.start_timeout_s:
                    raise ServerError(
                        f"vllm serve is not ready, and {silent_s:.0f} s passed without output or "
                        f"work of its processes:\n{self.log_tail()}"
                    )
                progress.refresh()
                time.sleep(0.2)
        raise ServerError(f"vllm serve ended while starting:\n{self.log_tail()}")

    def is_healthy(self) -> bool:
        """Tell whether ``/health`` answers with status 200."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def metrics(self) -> str:
        """Return the text of ``/metrics``."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def stop(self) -> None:
        """Terminate the process; kill it if it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
