"""Remove secrets from texts that others wrote: server logs, errors, a process's last output.

vLLM logs its arguments, including ``--api-key``. A value that has a secret's name in this process's
environment or command line is removed wherever it occurs, and so are passwords in URLs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from vllm_ascend_spec.bench.redaction import HIDDEN, TOKEN

# Does not match `max_tokens`, `tokenizer`, `suffix_decoding_min_token_prob`.
SECRET = re.compile(
    r"(?:token(?!s|iz|_prob)|secret|passw|passphrase|credential|(?:^|[-_.])(?:keys?|pass|pwd|pat|auth)"
    r"(?:$|[-_.])|apikey|authorization|cookie)",
    re.IGNORECASE,
)
# Variables of the shell that are named like a password, but hold working directories.
FOLDERS = ("PWD", "OLDPWD")
SHORTEST = 4  # shorter ones are words like "yes", and no secrets
# A key and its value in incomplete JSON, or in a similar notation.
PAIR = re.compile(r"""([\w.-]+)["']?\s*[:=]\s*(?:"([^"]*)"?|'([^']*)'?|([^\s"',}]+))""")
URL_USER = re.compile(r"(?<=://)[^\s/@'\"]+@")


def redact(
    text: str,
    argv: Sequence[str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return ``text`` with every secret replaced by :data:`HIDDEN`.

    Args:
        text: what is to be shown.
        argv: command line, this process's by default.
        variables: environment, this process's by default.
    """
    argv = sys.argv[1:] if argv is None else argv
    variables = os.environ if variables is None else variables
    found = {*_in_environment(variables), *_in_arguments(argv)}
    forms = {form for value in found if len(value) >= SHORTEST for form in _forms(value)}
    if forms:
        longest_first = sorted(forms, key=len, reverse=True)
        any_of = "|".join(map(re.escape, longest_first))
        text = re.sub(rf"(?<![A-Za-z0-9])(?:{any_of})(?![A-Za-z0-9])", HIDDEN, text)
    return TOKEN.sub(HIDDEN, URL_USER.sub(f"{HIDDEN}@", text))


def _in_environment(variables: Mapping[str, str]) -> Iterator[str]:
    names = (name for name in variables if name not in FOLDERS and SECRET.search(name))
    return (variables[name] for name in names)


def _in_arguments(argv: Sequence[str]) -> Iterator[str]:
    """Yield the values of options, and of keys in their JSON, whose name is a secret's."""
    is_secret = False
    for argument in argv:
        name, is_joined, value = argument.partition("=")
        if argument.startswith("-"):
            if is_secret and not is_joined:
                yield argument
            is_secret = bool(SECRET.search(name))
            if is_secret and is_joined:
                is_secret = False
                yield value
        elif is_secret:
            yield argument
        yield from _in_text(value if is_joined and argument.startswith("-") else argument)
        if len(argument.split()) > 1:
            yield from _in_command(argument)


def _in_command(text: str) -> Iterator[str]:
    """Yield the secrets in an argument that is itself a command, or a part of one."""
    # Besides shell syntax, also split without quotes: an unclosed one would swallow the rest.
    yield from _in_arguments(re.sub("[\"']", "", text).split())
    for end in ("", "'", '"', "\\"):
        try:
            words = shlex.split(text + end)
        except ValueError:
            continue
        yield from _in_arguments(words)
        return


def _in_text(text: str) -> Iterator[str]:
    """Yield the secret values of keys in an argument's own text."""
    for name, *values in PAIR.findall(text):
        if SECRET.search(name):
            yield from values
    if text[:1] in ("{", "["):
        try:
            yield from _secret_leaves(json.loads(text), is_secret=False)
        except (ValueError, RecursionError):
            return


def _secret_leaves(value: Any, *, is_secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _secret_leaves(part, is_secret=is_secret or bool(SECRET.search(name)))
    elif isinstance(value, list):
        for part in value:
            yield from _secret_leaves(part, is_secret=is_secret)
    elif is_secret and isinstance(value, str):
        yield value


def _forms(value: str) -> Iterator[str]:
    """Yield how a value may be written: as it is, in Python, in JSON, in a URL."""
    yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1])
    yield quote(value, safe="", errors="replace")
