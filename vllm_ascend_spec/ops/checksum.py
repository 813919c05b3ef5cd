"""Check that a built library is intact before it is loaded.

Pages of a library are read on first access: a truncated library kills the process with SIGBUS in
the middle of a request, and one with wrong bytes crashes or computes wrong results. So a build
stores the library's SHA-256 next to it, in the form that ``sha256sum --check`` reads.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

SUFFIX = ".sha256"
ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
# Fields of an ELF header: offset of the section table, size of an entry, number of entries.
SECTION_TABLE = struct.Struct("<40xQ10xHH2x")


def checksum_of(library: Path) -> Path:
    """Return the path of a library's checksum file."""
    return library.with_name(library.name + SUFFIX)


def write_checksum(library: Path) -> None:
    """Write the checksum file of a library just built; ``ops/build.py`` does the same."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    checksum_of(library).write_text(f"{digest}  {library.name}\n")


def file_problem(library: Path) -> str | None:
    """Return what is wrong with a library's file, or None.

    Without a checksum file, which builds before 0.3.1 did not write, only the length is checked.

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
    """Return the first line of a loader error, or its type's name if it is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _cut_off(name: str, content: bytes) -> str | None:
    """Return a message if a library ends before its section table, which linkers write last."""
    if not content.startswith(ELF_64_LITTLE_ENDIAN) or len(content) < SECTION_TABLE.size:
        return None  # too short or another format: the loader reports it
    start, size, count = SECTION_TABLE.unpack_from(content)
    if len(content) >= start + size * count:
        return None
    return f"{name} is damaged, it ends after {len(content)} of {start + size * count} bytes"
