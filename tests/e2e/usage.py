"""What a server and the processes that it has started hold: memory and file descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Use:
    """What a process holds.

    Attributes:
        name: of the process.
        memory: bytes that are given back when it ends (USS).
        descriptors: open files, sockets and pipes.
    """

    name: str
    memory: int
    descriptors: int


def uses_of(pid: int) -> dict[int, Use]:
    """Return what a process and those below it hold, by their ids."""
    top = psutil.Process(pid)
    found = {}
    for process in (top, *top.children(recursive=True)):
        try:
            with process.oneshot():
                name = (process.cmdline() or [process.name()])[0]
                memory = process.memory_full_info().uss
                found[process.pid] = Use(name.rpartition("/")[2], memory, process.num_fds())
        except psutil.NoSuchProcess:  # a compiler, say, that has just ended
            continue
    return found


def memory_of(uses: Mapping[int, Use]) -> int:
    """Return the bytes of all of them."""
    return sum(use.memory for use in uses.values())


def more_descriptors(before: Mapping[int, Use], after: Mapping[int, Use]) -> dict[str, int]:
    """Return by name and id how many descriptors more those hold that hold more."""
    nothing = Use("", 0, 0)
    more = {
        f"{use.name} {pid}": use.descriptors - before.get(pid, nothing).descriptors
        for pid, use in after.items()
    }
    return {name: number for name, number in more.items() if number > 0}


def told(before: Mapping[int, Use], after: Mapping[int, Use]) -> str:
    """Return one line about how each process has grown."""
    return ", ".join(
        f"{use.name} {before[pid].memory / 1e6:.1f} -> {use.memory / 1e6:.1f} MB, "
        f"{before[pid].descriptors} -> {use.descriptors} descriptors"
        for pid, use in after.items()
        if pid in before
    )
