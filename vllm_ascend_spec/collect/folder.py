"""The folder of collected requests: whole lines, and never more bytes than allowed.

Each process appends to files of its own. A lock lets one process write at a time, so all of them
together keep within the bound.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

from vllm_ascend_spec.training.atomic import cut_torn_line
from vllm_ascend_spec.training.prompt_files import COLLECTED

LOCK = ".collected.lock"
# From this size on another file is begun, so that finished ones can be taken away meanwhile.
FILE_BYTES = 64 * 10**6
FOR_OWNER, FOLDER_FOR_OWNER = 0o600, 0o700
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
APPEND = FLAGS | os.O_WRONLY | os.O_APPEND


class CollectedFolder:
    """The files of one process in the folder.

    Args:
        path: the folder.
        max_bytes: maximum size of all such files in it, of other processes and earlier ones, too.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._name, self._number = secrets.token_hex(4), 0

    def open(self) -> None:
        """Create the folder if there is none; cut off lines that killed processes began.

        Raises:
            OSError: the disk refuses.
        """
        self._path.mkdir(mode=FOLDER_FOR_OWNER, parents=True, exist_ok=True)
        with self._locked():
            for path in collected_files(self._path):
                with suppress(FileNotFoundError):
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
        file = self._open_last()
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

    def _open_last(self) -> int:
        """Open the file that is written to; a new one if that is large or was taken away.

        No name is used twice, so that files moved to one folder do not replace each other.
        """
        with suppress(FileNotFoundError):
            file = os.open(self._file(), APPEND)
            if os.fstat(file).st_size < FILE_BYTES:
                return file
            os.close(file)
        self._number += 1
        return os.open(self._file(), APPEND | os.O_CREAT | os.O_EXCL, FOR_OWNER)

    def _file(self) -> Path:
        return self._path / f"collected-{self._name}-{self._number:04}.jsonl"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._path / LOCK, FLAGS | os.O_CREAT | os.O_RDWR, FOR_OWNER)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def collected_files(folder: Path) -> list[Path]:
    """Return the files of collected requests in a folder; none if there is no such folder.

    Nothing else in it is counted or changed.
    """
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if COLLECTED.fullmatch(path.name)]


def size_of(folder: Path) -> int:
    """Return how many bytes are collected in a folder; files may be taken away meanwhile."""
    total = 0
    for path in collected_files(folder):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
