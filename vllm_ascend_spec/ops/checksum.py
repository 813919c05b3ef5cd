"""Tell whether a built library is whole before it is loaded.

Pages of a library are read when they are first touched: one that was cut off kills the process with
SIGBUS in the middle of a request, and one with wrong bytes crashes or computes wrong results. So a
build leaves the library's SHA-256 beside it, in the form that ``sha256sum --check`` reads.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

SUFFIX = ".sha256"
ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
# Of an ELF header: where the table of sections begins, the size of an entry, how many there are.
SECTION_TABLE = struct.Struct("<40xQ10xHH2x")


def checksum_of(library: Path) -> Path:
    """Return where the checksum of a library is."""
    return library.with_name(library.name + SUFFIX)


def write_checksum(library: Path) -> None:
    """Leave the checksum beside a library that was just built. ``ops/build.py`` does the same."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    checksum_of(library).write_text(f"{digest}  {library.name}\n")


def file_problem(library: Path) -> str | None:
    """Return what is wrong with a library's file, or None.

    Where its build left no checksum, as builds before 0.3.1 did not, only its length is checked.

    Raises:
        OSError: the file cannot be read.
    """
    content = library.read_bytes()
    if not checksum_of(library).is_file():
        return _cut_off(library.name, content)
    built = checksum_of(library).read_text(errors="replace").split()[:1]
    if [hashlib.sha256(content).hexdigest()] == built:
        return None
    return f"{library.name} is damaged, its SHA-256 is not that of the library that was built"


def first_line(error: Exception) -> str:
    """Return what an error of the loader says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _cut_off(name: str, content: bytes) -> str | None:
    """Return that a library ends before its table of sections does, which linkers write last."""
    if not content.startswith(ELF_64_LITTLE_ENDIAN) or len(content) < SECTION_TABLE.size:
        return None  # too short or something else: the loader says so
    start, size, count = SECTION_TABLE.unpack_from(content)
    if len(content) >= start + size * count:
        return None
    return f"{name} is damaged, it ends after {len(content)} of {start + size * count} bytes"
