"""Run something as a person does: a fresh process, a plain environment, from the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT
from tests.warm.programs import Programs
from vllm_ascend_spec.bench.server import Server

BIN = Path(sys.executable).parent
# For what need not be as a person runs it in this, too. As many tests run at once as there are
# cores, and an engine's threads that wait for each other make minutes of seconds there.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# By default most examples run without torch.compile and in copies of a process that has imported
# vLLM (tests/warm). Both take most of a start on a CPU and are shown by others: the demo's servers,
# and tests/e2e. By night all run as a person runs them.
COMPILES_ALL = "TESTS_COMPILE_ALL" in os.environ
UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1", "VLLM_USE_AOT_COMPILE": "0"}
SMALL = ONE_THREAD | ({} if COMPILES_ALL else UNCOMPILED)
# What tests and CI set and a person's shell does not have.
SET_BY_TESTS = ("VLLM_", "OMP_", "NUMBA_", "PYTEST_", "MAKE", "MFLAGS", "TRITON_", "CI")
# Once: what tests import adds variables to this process, which no shell has, and a command whose
# environment is not that of the process to copy runs in one of its own.
GIVEN = {name: value for name, value in os.environ.items() if not name.startswith(SET_BY_TESTS)}
TIMEOUT_S = 600


def environment(**more: str) -> dict[str, str]:
    """Return what a person's shell has, this virtual environment activated."""
    return GIVEN | {"PATH": f"{BIN}{os.pathsep}{GIVEN['PATH']}", **more}


@cache
def small() -> dict[str, str]:
    """Return what is set for an example that is not compiled, and runs in a copy."""
    return SMALL if COMPILES_ALL else SMALL | Programs(environment(**SMALL)).variables


def run(*words: str, folder: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; ``more`` goes to its environment."""
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def succeed(*words: str, folder: Path = ROOT, **more: str) -> str:
    """Run a command, require status 0 and return what it printed to stdout."""
    result = run(*words, folder=folder, **more)
    said = result.stdout[-2000:] + result.stderr[-4000:]
    assert result.returncode == 0, f"{' '.join(words)}\n{said}"
    return result.stdout


def shell(text: str, **more: str) -> str:
    """Run a line of shell, require status 0 and return what it printed to stdout."""
    return succeed("bash", "-c", text, **more)


def server(text: str, **more: str) -> Server:
    """Return the server that a line of shell starts, on a free port instead of 8000."""
    started = Server("", environment=only(environment(**more)))
    # bash becomes its last command, so that stopping it stops the server.
    started.command = ["bash", "-c", f"{text} --port {started.port}"]
    return started


def only(variables: Mapping[str, str]) -> dict[str, str | None]:
    """Return an environment for a server; None takes away what this process has beside it."""
    return {**dict.fromkeys(name for name in os.environ if name not in variables), **variables}


def small_server(
    model: str, spec: Mapping[str, Any], arguments: Sequence[str], **more: str
) -> Server:
    """Return the server of a model and a speculative config, see :func:`small`."""
    return Server(
        model,
        spec,
        arguments=arguments,
        environment=only(environment(**small(), **more)),
        launcher=["vllm", "serve", model],
    )
