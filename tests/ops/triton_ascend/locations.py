"""Turns MLIR's locations into ``file:line`` of the Triton source."""

from __future__ import annotations

import re

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')


class Locations:
    """The aliases at the top and bottom of a printed module."""

    def __init__(self, text: str) -> None:
        self.aliases = dict(_ALIAS.findall(text))

    def place(self, location: str) -> str:
        """Return where in a kernel's source an operation comes from: ``scan.py:58``.

        Of code that was inlined, that is the line of the innermost helper.
        """
        for _ in range(50):
            if match := _PLACE.match(location):
                return f"{match[1].rpartition('/')[2]}:{match[2]}"
            callee = location.removeprefix("callsite(").partition(" at ")[0]
            if callee not in self.aliases:
                return "?"
            location = self.aliases[callee]
        return "?"
