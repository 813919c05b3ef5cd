"""The words of a shell's commands, with the places where they stand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

CONTINUED = "\\\n"
# A comment behind a backslash: a shell takes the backslash for an escaped space, ends the command
# there, and runs the next line as another one. Guides have it all the same.
BROKEN = re.compile(r"\\[ \t]+(?:#[^\n]*)?\n")
PIECE = r"""
    '[^']*'                         # as it stands
  | "(?:[^"\\]|\\.)*"               # with what the shell expands in it
  | \\[^\n]
  | \$\((?:[^()]|\([^()]*\))*\)     # a command's output, or Kubernetes' variable
  | \$\{[^}]*\}
  | `[^`]*`
  | [^\s'"\\;&|<>()`]
"""
TOKEN = re.compile(
    rf"""
    (?P<space>[ \t\r]+ | \\[ \t]*(?:\#[^\n]*)?\n)
  | (?P<end>\n | ;;? | \|[|&]? | &&)
  | (?P<redirection>\d*[<>]+&?\d*|&>)
  | (?P<other>[&()])
  | (?P<comment>\#[^\n]*)
  | (?P<word>(?:{PIECE})+)
  | (?P<rest>.)
    """,
    re.VERBOSE | re.DOTALL,
)
PIECES = re.compile(PIECE, re.VERBOSE | re.DOTALL)


@dataclass(frozen=True)
class Word:
    """A word of a command.

    Attributes:
        text: what a program gets, but for variables, which stand as they are.
        start: where it begins in the whole text.
        end: where it ends.
        is_live: whether something in it is put in later, as ``${model}``.
    """

    text: str
    start: int
    end: int
    is_live: bool = False


def commands(text: str, *, line_ends_command: bool = True) -> Iterator[list[Word]]:
    """Yield the words of each command; comments are none.

    Args:
        text: of a script, or a command line.
        line_ends_command: whether the end of a line ends a command, where no backslash is before.
    """
    words: list[Word] = []
    for token in TOKEN.finditer(text):
        if token["word"]:
            words.append(_word(token))
        elif token["end"] and (line_ends_command or token["end"] != "\n"):
            yield words
            words = []
    yield words


def _word(token: re.Match[str]) -> Word:
    pieces = [_piece(piece[0]) for piece in PIECES.finditer(token["word"])]
    text, live = "".join(text for text, _ in pieces), any(live for _, live in pieces)
    return Word(text, token.start(), token.end(), live)


def _piece(raw: str) -> tuple[str, bool]:
    """Return what a piece of a word comes to, and whether something is put into it later."""
    if raw[0] == "'":
        return raw[1:-1], False
    if raw[0] == '"':
        inner = re.sub(r"\\([\"\\`]|\n)", lambda m: m[1].strip("\n"), raw[1:-1])
        return inner, re.search(r"(?<!\\)[$`]", inner) is not None
    if raw[0] == "\\":
        return raw[1:], False
    return raw, raw[0] in "$`"


def quoted(text: str, *, is_live: bool = False) -> str:
    """Return a word as a script has it.

    Args:
        text: what a program gets.
        is_live: whether what begins with ``$`` is the shell's.
    """
    if not is_live:
        return shlex.quote(text)
    return '"' + re.sub(r'(\\(?!\$)|["`])', r"\\\1", text) + '"'
