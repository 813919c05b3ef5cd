"""Write files so that a process killed at any time leaves whole ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

TEMPORARY = ".tmp"


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, and rename it when it is on the disk.

    Args:
        path: the file.
        write: writes the file of the path that it gets.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    write(temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line; one that a killed process began has to be cut off before."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def cut_torn_line(path: Path) -> None:
    """Cut off what follows the last newline of a file, if there is one."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - 65536)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        file.truncate(end)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
