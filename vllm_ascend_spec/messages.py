"""Format one-line messages of bounded length about an option, its value and what is valid."""

from __future__ import annotations

import reprlib

# At most 300 with the prefix "vllm-ascend-spec check: error: " or the exception's name.
LONGEST = 258
LONGEST_OPTION = 100
SHORTEST_VALUE = 60
CUT = "…"


class _Short(reprlib.Repr):
    """The ``repr`` of a value of any size and depth, cut in the middle."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = longest
        self.fillvalue = CUT

    def repr_int(self, x: int, level: int) -> str:
        """Return the digits of ``x``; Python refuses to write more than some thousands of them."""
        try:
            return super().repr_int(x, level)
        except ValueError:
            return f"<a number of {x.bit_length()} bits>"


def one_line(option: str, value: object, problem: str) -> str:
    """Return ``option=value: problem``, at most :data:`LONGEST` characters without a line break.

    A longer message is cut: first the value, down to :data:`SHORTEST_VALUE`, then the end of the
    problem, so a problem should begin with what matters.
    """
    option = _cut_end(_printable(option), LONGEST_OPTION)
    problem = _printable(" ".join(problem.split()))
    room = LONGEST - len(option) - len(problem) - len("=: ")
    head = f"{option}={short_repr(value, max(room, SHORTEST_VALUE))}: "
    return head + _cut_end(problem, LONGEST - len(head))


def plain_line(text: str) -> str:
    """Return another program's ``text`` as one line of limited length."""
    return _cut_end(_printable(" ".join(text.split())), LONGEST)


def short_repr(value: object, longest: int) -> str:
    """Return ``repr(value)``; cut its middle out if it exceeds ``longest`` characters."""
    try:
        whole = repr(value)
    except Exception:  # too many digits, too deep, or a class whose repr fails
        whole = ""
    if not whole or len(whole) > longest:
        whole = _Short(longest).repr(value)
    return _cut_middle(_printable(whole), longest)


def _printable(text: str) -> str:
    """Escape line breaks and other unprintable characters in ``text``."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def _cut_end(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - len(CUT)].rstrip() + CUT


def _cut_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    kept = longest - len(CUT)
    return text[: kept - kept // 2] + CUT + text[len(text) - kept // 2 :]
