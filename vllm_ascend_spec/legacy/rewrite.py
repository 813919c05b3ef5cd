"""Rewrite scripts and command lines with old options; all other text stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from vllm_ascend_spec.legacy.names import BY_FLAG
from vllm_ascend_spec.legacy.options import NEW, Replacement, filled_in, replacement
from vllm_ascend_spec.legacy.shell import BROKEN, CONTINUED, Word, commands, quoted

ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.DOTALL)
BROKEN_NOTE = "a comment behind a \\ ends the command in any shell: removed"


@dataclass(frozen=True)
class Edit:
    """New text for the characters from ``start`` to ``end``."""

    start: int
    end: int
    text: str


@dataclass
class Rewritten:
    """A rewritten text, with notes for the user.

    Attributes:
        text: the new text.
        notes: what was inferred, and what was left out.
        count: number of commands that had old options.
    """

    text: str
    notes: list[str] = field(default_factory=list)
    count: int = 0


def has_old(text: str) -> bool:
    """Tell whether a text may have an old option in it; a quick first test."""
    text = text.replace("_", "-")
    return any(flag in text for flag in BY_FLAG)


def rewrite(text: str, *, line_ends_command: bool = True) -> Rewritten:
    """Rewrite a script or a command line.

    Args:
        text: text of the script or command line.
        line_ends_command: as for :func:`vllm_ascend_spec.legacy.shell.commands`.

    Raises:
        ConfigError: old options contradict each other or new ones, or say too little.
    """
    result, known = Rewritten(text), dict[str, str]()
    edits: list[Edit] = []
    for words in commands(text, line_ends_command=line_ends_command):
        known |= _assigned(words, known)
        edits += _nested(text, words, result)
        found = replacement(words, known)
        if found is None:
            continue
        edits += _of_options(words, found)
        edits += _of_broken_lines(text, words, edits, result)
        result.count += 1
        result.notes += found.notes
    result.text = apply(text, edits)
    return result


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with edits applied; no two of them may overlap."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _assigned(words: Sequence[Word], known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a command sets, as far as their values are known."""
    found: dict[str, str] = {}
    for word in words:
        assignment = ASSIGNMENT.fullmatch(word.text)
        if assignment is None:
            if word.text == "export":
                continue
            break
        value = filled_in(assignment[2], known)
        if not word.is_live or "$" not in value:
            found[assignment[1]] = value
    return found


def _nested(text: str, words: Sequence[Word], result: Rewritten) -> list[Edit]:
    """Return edits of words that are scripts themselves, as after ``bash -c``."""
    edits = []
    for word in words:
        if not any(mark in word.text for mark in " \n\t") or not has_old(word.text):
            continue
        inner = rewrite(word.text)
        if inner.count:
            # The outer shell must still expand its variables.
            is_live = text[word.start] == '"' and word.is_live
            edits.append(Edit(word.start, word.end, quoted(inner.text, is_live=is_live)))
            result.count += inner.count
            result.notes += inner.notes
    return edits


def _of_options(words: Sequence[Word], found: Replacement) -> list[Edit]:
    """Return the edits that replace one old option by the new one and remove all others."""
    edits = []
    for one in found.found:
        start, end = words[one.first].start, words[one.last].end
        if one is found.anchor and found.json is not None:
            new = f"{NEW} {quoted(found.json, is_live=found.is_live)}"
            edits.append(Edit(start, end, new))
        else:
            # Includes the space or line break before it.
            before = words[one.first - 1].end if one.first else start
            edits.append(Edit(before, end, ""))
    return edits


def _of_broken_lines(
    text: str, words: Sequence[Word], edits: Sequence[Edit], result: Rewritten
) -> list[Edit]:
    """Return edits that repair broken line continuations of a command."""
    found = [
        Edit(match.start(), match.end(), CONTINUED)
        for word, after in pairwise(words)
        for match in BROKEN.finditer(text, word.end, after.start)
    ]
    if found and BROKEN_NOTE not in result.notes:
        result.notes.append(BROKEN_NOTE)
    return [edit for edit in found if not any(_covers(other, edit) for other in edits)]


def _covers(outer: Edit, inner: Edit) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end
