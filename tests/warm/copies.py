"""The process that commands are copied from: ``python -m tests.warm.copies SOCKET MODULE ...``.

It imports the modules, and vLLM if it is among them or if none is named. It ends when its stdin
does.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

# What may differ from one command to the next: nothing reads it before an engine starts.
READ_LATE = (
    *("PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_"),
    *("VLLM_API_KEY", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND"),
)
POLL_S = 0.05
# The server as a module, as guides start it.
SERVER = "vllm.entrypoints.openai.api_server"
# Packages of the modules that are run: the tests', and the phases and engines of ``train``.
KNOWN = ("tests.", "vllm_ascend_spec.training.")
VLLM = "vllm"
# What imports have read; some add variables of their own.
GIVEN = dict(os.environ)


def serve(path: str, modules: Sequence[str]) -> None:
    """Copy this process for each command that comes."""
    ready = os.dup(1)
    # Nothing else may write to it, as what is imported does.
    os.dup2(2, 1)
    if VLLM in modules or not modules:
        import_vllm()
    for module in modules:
        importlib.import_module(module)
    assert threading.active_count() == 1, "only what has one thread can be copied"
    # vLLM asks for "spawn" on a CPU; what that starts would import everything again.
    get_context = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: get_context("fork")  # type: ignore[assignment]
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        os.write(ready, b"ready\n")
        os.close(ready)
        # Nobody waits for those who keep watch.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            peer, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                keep(peer)
            peer.close()


def import_vllm() -> None:
    """Import what servers and engines need."""
    import vllm.entrypoints.cli.main
    import vllm.entrypoints.cli.serve
    import vllm.entrypoints.openai.api_server
    import vllm.model_executor.models.llama
    import vllm.v1.attention.backends.cpu_attn
    import vllm.v1.engine.core
    import vllm.v1.executor.multiproc_executor
    import vllm.v1.worker.cpu_model_runner
    import vllm.v1.worker.cpu_worker  # noqa: F401 - imported so that no copy has to
    from vllm import LLM  # noqa: F401
    from vllm.platforms import current_platform

    assert current_platform.device_type
    choose_values_late()


def choose_values_late() -> None:
    """Let prometheus_client look for its folder as metrics are made, not as it is imported."""
    from prometheus_client import values

    of_folder = cache(lambda folder: values.get_value_class())

    def value(*args: Any, **kwargs: Any) -> Any:
        return of_folder(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))(*args, **kwargs)

    values.ValueClass = value


def keep(peer: socket.socket) -> NoReturn:
    """Copy this process once more for a command, watch it and tell its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(peer, 1, 3)
    with peer.makefile("rw") as lines:
        job = json.loads(lines.readline())
        if not takes(job["words"], job["environment"]):
            lines.write("0\n")
        else:
            child = os.fork()
            if child == 0:
                peer.close()
                run(job, files)
            for file in files:
                os.close(file)
            lines.write(f"{child}\n")
            lines.flush()
            lines.write(f"{status_of(child, peer)}\n")
    os._exit(0)


def status_of(child: int, peer: socket.socket) -> int:
    """Wait for a command's end; it does not outlive the program that it runs for."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if select.select([peer], [], [], POLL_S)[0]:
            os.killpg(child, signal.SIGKILL)


def takes(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether a copy does what a new process would."""
    known, asked = (
        {name: value for name, value in given.items() if name not in READ_LATE}
        for given in (GIVEN, environment)
    )
    return known == asked and is_program(words)


def is_program(words: Sequence[str]) -> bool:
    """Tell whether a command is a server, or Python with a file or with a module known here."""
    program, first, second, *_ = [*words, "", ""]
    if program == "vllm":
        return first == "serve"
    is_known = second == SERVER or second.startswith(KNOWN)
    return first.endswith(".py") or (first == "-m" and is_known)


def run(job: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Run a command in this copy, with its own folder, environment and standard files."""
    os.setsid()
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    ours = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    theirs = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    rest = [path for path in sys.path[1:] if path not in ours]
    program, *words = job["words"]
    if program == "vllm":
        from vllm.entrypoints.cli.main import main

        sys.path[:] = [*theirs, *rest]
        sys.argv = [program, *words]
        sys.exit(main())
    if words[0] == "-m":
        sys.path[:] = [os.getcwd(), *theirs, *rest]
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[:] = [os.path.dirname(os.path.abspath(words[0])), *theirs, *rest]
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
