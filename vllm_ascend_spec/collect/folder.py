"""The folder of collected requests: whole lines, and never more bytes than allowed.

Each process appends to files of its own. A lock lets one process write at a time, so all of them
together keep within the bound.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

from vllm_ascend_spec.training.atomic import cut_torn_line

# Nothing else in the folder is counted or changed.
NAME = re.compile(r"collected-[0-9a-f]{8}-\d{4,}\.jsonl")
LOCK = ".collected.lock"
# From this size on another file is begun, so that finished ones can be taken away meanwhile.
FILE_BYTES = 64 * 10**6
FOR_OWNER, FOLDER_FOR_OWNER = 0o600, 0o700
FLAGS = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class CollectedFolder:
    """The files of one process in the folder.

    Args:
        path: the folder.
        max_bytes: maximum size of all such files in it, of other processes and earlier ones, too.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._name, self._number = secrets.token_hex(4), 1

    def open(self) -> None:
        """Create the folder if there is none; cut off lines that killed processes began.

        Raises:
            OSError: the disk refuses.
        """
        self._path.mkdir(mode=FOLDER_FOR_OWNER, parents=True, exist_ok=True)
        with self._locked():
            for path in collected_files(self._path):
                cut_torn_line(path)

    def append(self, lines: Sequence[bytes]) -> int:
        """Write lines, and return how many fit into the bound; the others are not written.

        Raises:
            OSError: the disk refuses; nothing was written.
        """
        with self._locked():
            room = self._max_bytes - size_of(self._path)
            count = sum(total <= room for total in accumulate(map(len, lines)))
            if count:
                self._write(b"".join(lines[:count]))
        return count

    def _write(self, data: bytes) -> None:
        file = os.open(self._file(), FLAGS | os.O_WRONLY | os.O_APPEND, FOR_OWNER)
        try:
            size = os.fstat(file).st_size
            try:
                written = 0
                while written < len(data):
                    written += os.write(file, data[written:])
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)

    def _file(self) -> Path:
        path = self._path / f"collected-{self._name}-{self._number:04}.jsonl"
        if path.exists() and path.stat().st_size >= FILE_BYTES:
            self._number += 1
            return self._file()
        return path

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._path / LOCK, FLAGS | os.O_RDWR, FOR_OWNER)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def collected_files(folder: Path) -> list[Path]:
    """Return the files of collected requests in a folder; none if there is no such folder."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if NAME.fullmatch(path.name)]


def size_of(folder: Path) -> int:
    """Return how many bytes are collected in a folder."""
    return sum(path.stat().st_size for path in collected_files(folder))
