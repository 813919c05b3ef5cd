"""Run the phases of ``train`` one after another, each in a process of its own."""

from __future__ import annotations

import fcntl
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.output import OPTION, Output
from vllm_ascend_spec.training.phases.run import PACKAGE, PHASES
from vllm_ascend_spec.training.process import shell_status
from vllm_ascend_spec.training.progress import duration
from vllm_ascend_spec.training.settings import Settings

RUN = "vllm_ascend_spec.training.phases.run"
TORCHRUN = "vllm_ascend_spec.training.torchrun"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The phase that trains: the only one with a process for each device.
TRAINS = "fit"
TITLES: Mapping[str, str] = {
    "answers": "the target's answers",
    "states": "hidden states",
    "vocabulary": "draft vocabulary",
    "fit": "training",
    "proof": "proof on held-out prompts",
}
AGAIN = "what is done is kept; the same command goes on from there"


@dataclass
class Relay:
    """Hands a signal to end on to the phase that runs: the first one gently, the next one not.

    Attributes:
        child: the phase's process.
        got: number of the first signal; 0 if there was none.
    """

    child: subprocess.Popen[bytes] | None = None
    got: int = field(default=0, init=False)

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        is_first, self.got = not self.got, self.got or number
        if self.child is None:
            return
        if is_first:
            self.child.send_signal(signal.SIGINT)
        else:
            end_group(self.child.pid)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the signals within the context."""
        before = {number: signal.signal(number, self.take) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def end_group(group: int) -> None:
    """End what is left of a phase, such as an engine's processes."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@contextmanager
def owned(output: Output) -> Iterator[int]:
    """Hold the output folder, so that nobody else writes there.

    Yields:
        Number of the lock's open file. Processes that get it hold the folder, too, if this one is
        killed before them.

    Raises:
        ConfigError: another process holds it.
    """
    with output.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            problem = "another train writes there; valid: wait for its end, or another folder"
            raise ConfigError(OPTION, str(output.folder), problem) from None
        try:
            yield file.fileno()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def command(name: str, settings: Settings) -> list[str]:
    """Return the command that runs a phase."""
    words = [RUN, name, str(settings.output)]
    if name == TRAINS and settings.nproc_per_node > 1:
        words = [TORCHRUN, str(os.getpid()), str(settings.nproc_per_node), *words]
    return [sys.executable, "-m", *words]


def run_phases(
    settings: Settings,
    show: Callable[[str], object],
    environment: Mapping[str, str],
    lock: int,
    phases: Sequence[str] = PHASES,
) -> int:
    """Run those that are not done, up to the first that fails.

    Args:
        settings: saved in the output folder before.
        show: takes a line at the begin and the end of each.
        environment: variables of their processes.
        lock: that of :func:`owned`, which their processes hold, too.
        phases: their names, in order.

    Returns:
        0, or the exit status of the one that failed; 128 and the signal's number if one ended it.
    """
    relay = Relay()
    with relay.installed():
        for number, name in enumerate(phases, 1):
            phase = importlib.import_module(f"{PACKAGE}.{name}")
            title = f"[{number}/{len(phases)}] {TITLES.get(name, phase.NAME)}"
            if relay.got:
                break
            if phase.is_done(settings):
                show(f"{title}: done before")
                continue
            show(f"{title} …")
            begin = time.monotonic()
            status = _run(command(name, settings), environment, lock, relay)
            took = duration(time.monotonic() - begin)
            if relay.got:
                break
            if status:
                show(f"{title}: failed after {took} ({_told(status)}); {AGAIN}")
                return shell_status(status)
            show(f"{title}: done in {took}")
    if relay.got:
        show(f"ended by {signal.Signals(relay.got).name}; {AGAIN}")
        return 128 + relay.got
    return 0


def _run(words: list[str], environment: Mapping[str, str], lock: int, relay: Relay) -> int:
    """Run a process in a session of its own, which the terminal's Ctrl-C does not reach."""
    with subprocess.Popen(
        words,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(lock,),
    ) as child:
        relay.child = child
        if relay.got:  # before there was a child
            child.send_signal(signal.SIGINT)
        status = child.wait()
        relay.child = None
    end_group(child.pid)
    return status


def _told(status: int) -> str:
    if status >= 0:
        return f"exit status {status}; the lines above say why"
    name = signal.Signals(-status).name
    is_memory = status == -signal.SIGKILL
    return f"ended by {name}" + ("; maybe the machine has too little memory" if is_memory else "")
