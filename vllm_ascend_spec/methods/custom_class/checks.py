"""Checks of the class that method ``custom_class`` is given.

The user's module is imported in a separate process with a time limit: the import may do anything,
and a crash must not end ``check`` or a server. A module that this process has already imported,
such as ``__main__``, is checked here.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.custom_class import class_probe

OPTION = "speculative_config.model"
# Time limit of the import; torch alone takes some seconds, and many on a slow disk.
TIME_LIMIT_S = 120.0


def check_custom_class(request: SpecInput) -> None:
    """Check that the class exists and can be called as vLLM calls it.

    Raises:
        ConfigError: naming what is wrong with it.
    """
    path = request.spec["model"]
    if not isinstance(path, str) or not _is_dotted(path):
        raise ConfigError(OPTION, path, f"is not the path of a class; {class_probe.FORM}")
    module = path.rpartition(".")[0]
    problem = class_probe.problem(path) if module in sys.modules else _elsewhere(path, *sys.path)
    if problem is not None:
        raise ConfigError(OPTION, path, problem)


def _is_dotted(path: str) -> bool:
    return "." in path and all(part.isidentifier() for part in path.split("."))


@functools.cache
def _elsewhere(path: str, *search_path: str) -> str | None:
    """Return the problem of the class, found in a separate process once per class, or None."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        arguments = [str(Path(class_probe.__file__)), path, str(answer), json.dumps(search_path)]
        # A session of its own, so that processes started by the module are ended with it.
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"importing its module did not end within {TIME_LIMIT_S:g} s"
        finally:
            _end(process)
        if not answer.is_file():
            return f"importing its module ended the process {_how(status)}"
        return json.loads(answer.read_text())


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _how(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    return f"by signal {signal.Signals(-status).name}"
