"""Processes that have imported vLLM, and one child of theirs for each engine.

Importing vLLM, torch_npu and vllm-ascend takes longer than a small engine takes to answer, and
each engine needs a process of its own. So one process imports, starts nothing, and is copied by
``fork`` for every engine of its environment.

``python -m tests.ascend.warm`` reads jobs from stdin, one a line, as JSON: that of an engine, and
with it ``log``, a file for what the engine says, and ``variables`` of its environment. For each job
it writes one line, the engine's exit status.

What an engine has imported on its way the process then imports too, in the same order: that takes
longer than what an eager engine does besides. By night each engine imports it anew.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.ascend import engine
from tests.ascend.environment import KERNEL_CHECKS, ROOT, python_of
from tests.engines import inspect_models_here

# Variables of an engine that nothing reads before it starts.
READ_LATE = ("NPU_SIM_BEYOND", "VLLM_USE_BYTECODE_HOOK", KERNEL_CHECKS)
# Modules of theirs that a test may have to import first.
OF_ENGINES = ("tests", "ops")
# Of one process of pytest; each holds half a gigabyte.
MOST_AT_ONCE = 3


class WarmProcess:
    """One process that engines are copied from.

    Args:
        environment: of the process, whole.
        log: a file for what it says.
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("w") as said:
            self._process = subprocess.Popen(
                [python_of(environment), "-m", "tests.ascend.warm"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=dict(environment),
                cwd=ROOT,
                text=True,
                # With its engines, so that none is left when it has to be killed.
                start_new_session=True,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def run(self, job: Mapping[str, Any], time_limit_s: float) -> int:
        """Run one engine and return its exit status.

        Raises:
            TimeoutError: it took longer; it and this process have been killed.
            RuntimeError: this process has ended, and with it the engine.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its last line says that it has ended
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=time_limit_s)
        except queue.Empty:
            self.kill()
            raise TimeoutError(f"an engine took more than {time_limit_s} seconds") from None
        if not line:
            said = self._log.read_text(errors="replace")
            raise RuntimeError(f"the process of engines ended with {self.close()}:\n{said[-4000:]}")
        return int(line)

    def close(self) -> int:
        """Let the process end and return its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._reader.join()
        self._process.stdout.close()
        return self._process.wait()

    def kill(self) -> None:
        """End the process and its engine at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.close()


class WarmProcesses:
    """One process for each environment, the latest few.

    Args:
        folder: for what they say.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, WarmProcess] = {}

    def run(
        self, job: Mapping[str, Any], environment: Mapping[str, str], time_limit_s: float
    ) -> int:
        """Run one engine in an environment and return its exit status; see :class:`WarmProcess`."""
        late = {name: value for name, value in environment.items() if name in READ_LATE}
        environment = {name: value for name, value in environment.items() if name not in late}
        key = json.dumps(environment, sort_keys=True)
        process = self._running.pop(key, None)
        if process is None:
            name = hashlib.sha256(key.encode()).hexdigest()
            process = WarmProcess(environment, self._folder / f"{name}-{os.getpid()}.log")
        status = process.run({**job, "variables": late}, time_limit_s)
        self._running[key] = process
        if len(self._running) > MOST_AT_ONCE:
            self._running.pop(next(iter(self._running))).close()
        return status

    def close(self) -> None:
        """Let all of them end."""
        while self._running:
            self._running.popitem()[1].close()


def serve() -> int:
    """Run the jobs of stdin; return the exit status of this process, or of a copy's engine."""
    answers = os.dup(1)
    # Nothing else may write to it, as what is imported does.
    os.dup2(2, 1)
    from vllm import LLM  # noqa: F401 - imported so that no engine has to
    from vllm.platforms import current_platform

    if current_platform.device_type == "npu":
        import_compiler()
    inspect_models_here()
    assert threading.active_count() == 1, "only what has one thread can be copied"
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        imported = Path(job["log"]).with_suffix(".imported")
        child = os.fork()
        if child == 0:
            os.close(answers)
            return answer(job)
        _, status = os.waitpid(child, 0)
        if imported.is_file() and "TESTS_COMPILE_ALL" not in os.environ:
            import_too(imported.read_text().split())
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    return 0


def import_compiler() -> None:
    """Import what each engine on an NPU imports behind ``set_device``, with no device yet.

    It asks for the SoC's version alone, but would make the device for that; and it keeps threads
    that no copy has.
    """
    import torch_npu

    begin, torch_npu.npu._lazy_init = torch_npu.npu._lazy_init, lambda: None
    import torch_npu._inductor
    from torch_npu._inductor.runtime.triton_heuristics import compile_thread_pool

    torch_npu.npu._lazy_init = begin
    threads = compile_thread_pool.pool
    threads.shutdown()
    compile_thread_pool.pool = ThreadPoolExecutor(threads._max_workers)
    assert not torch_npu.npu.is_initialized(), "what has a device cannot be copied"


def import_too(names: Sequence[str]) -> None:
    """Import what an engine has imported, but for what only it can or what starts threads."""
    for name in names:
        if name.split(".")[0] in OF_ENGINES or "_inductor" in name or name in sys.modules:
            continue
        with suppress(Exception):
            importlib.import_module(name)
    assert threading.active_count() == 1, "only what has one thread can be copied"
    gc.collect()
    gc.freeze()


def answer(job: dict[str, Any]) -> int:
    """Run one engine in a copy of this process, with its own standard files."""
    before, path = set(sys.modules), Path(job.pop("log"))
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for own, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(own, standard)
    os.environ.update(job.pop("variables"))
    module = job.pop("module", engine.__name__)
    importlib.import_module(module).main(job)
    # Others may run theirs in further processes, and then this one has no order of imports to tell.
    if module == engine.__name__:
        names = [name for name in sys.modules if name not in before]
        path.with_suffix(".imported").write_text("\n".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(serve())
