"""Split shell commands into words, with their positions in the text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

CONTINUED = "\\\n"
# A comment after a backslash: a shell reads an escaped space, ends the command there, and runs the
# next line as another command. Guides contain this all the same.
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
        text: what the program receives, except that variables are not expanded.
        start: where it begins in the whole text.
        end: where it ends.
        is_live: whether it has a variable that is expanded later, such as ``${model}``.
    """

    text: str
    start: int
    end: int
    is_live: bool = False


def commands(text: str, *, line_ends_command: bool = True) -> Iterator[list[Word]]:
    """Yield the words of each command, without comments.

    Args:
        text: a script or a command line.
        line_ends_command: whether a newline ends a command, unless a backslash precedes it.
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
    """Return a piece of a word unquoted, and whether it is expanded later."""
    if raw[0] == "'":
        return raw[1:-1], False
    if raw[0] == '"':
        inner = re.sub(r"\\([\"\\`]|\n)", lambda m: m[1].strip("\n"), raw[1:-1])
        return inner, re.search(r"(?<!\\)[$`]", inner) is not None
    if raw[0] == "\\":
        return raw[1:], False
    return raw, raw[0] in "$`"


def quoted(text: str, *, is_live: bool = False) -> str:
    """Return a word quoted for a script.

    Args:
        text: what the program receives.
        is_live: whether the shell expands what begins with ``$``.
    """
    if not is_live:
        return shlex.quote(text)
    return '"' + re.sub(r'(\\(?!\$)|["`])', r"\\\1", text) + '"'
