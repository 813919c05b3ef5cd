"""What a shared library asks of others, read from its ELF file: binutils may not be installed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

# Kinds of sections, of entries of the dynamic section, and of symbols (elf.h).
DYNAMIC, DYNAMIC_SYMBOLS = 6, 11
NEEDED, RPATH, RUNPATH = 1, 15, 29
UNDEFINED, WEAK = 0, 2


@dataclass(frozen=True)
class Library:
    """A 64-bit little-endian shared library.

    Attributes:
        needed: libraries it is linked against.
        search_paths: folders it has them looked for in.
        undefined: symbols that others must have.
    """

    needed: tuple[str, ...]
    search_paths: tuple[str, ...]
    undefined: tuple[str, ...]


@dataclass(frozen=True)
class _Section:
    kind: int
    content: bytes
    link: int  # the section with this one's names


def read(path: Path) -> Library:
    """Read the dynamic section and the dynamic symbols of a library."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path.name} is not a 64-bit little-endian ELF file")
    sections = _sections(data)
    needed, paths, undefined = [], [], []
    for section in sections:
        names = sections[section.link].content
        if section.kind == DYNAMIC:
            for tag, value in struct.iter_unpack("<qQ", section.content):
                if tag == NEEDED:
                    needed.append(_text(names, value))
                elif tag in (RPATH, RUNPATH):
                    paths.append(_text(names, value))
        elif section.kind == DYNAMIC_SYMBOLS:
            for name, info, _, where, _, _ in struct.iter_unpack("<IBBHQQ", section.content):
                if name and where == UNDEFINED and info >> 4 != WEAK:
                    undefined.append(_text(names, name))
    return Library(tuple(needed), tuple(paths), tuple(undefined))


def _sections(data: bytes) -> list[_Section]:
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = []
    for index in range(count):
        fields = struct.unpack_from("<IIQQQQIIQQ", data, offset + index * size)
        kind, start, length, link = fields[1], fields[4], fields[5], fields[6]
        sections.append(_Section(kind, data[start : start + length], link))
    return sections


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode()
