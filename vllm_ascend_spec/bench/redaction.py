"""Reduce environment and command line to what may be shown: see :mod:`.allowed` for the names.

What is not shown is replaced by :data:`HIDDEN`. A value of an allowed name has to look like one of
its kind too, so that a path with a home folder, or a URL with a password, is hidden as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from vllm_ascend_spec.bench import allowlist

HIDDEN = "…"
LONGEST = 200
# Numbers, switches, names and lists of them. No quotes, slashes, "@", "=": no path, URL or JSON.
PLAIN = re.compile(r"[A-Za-z0-9_.,:;|+{}()\[\] -]*")
PATH = re.compile(r"[A-Za-z0-9_.+/ -]+")
FILE = re.compile(r"[A-Za-z0-9_.+-]+")
# The name of an option or key that is not allowed is shown if it looks like a word.
OPTION_NAME = re.compile(r"--[a-z]+([_-][a-z]+)*|-[a-z]")
KEY_NAME = re.compile(r"[a-z]+([_-][a-z]+)*")
# Access keys of well-known services.
TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|[sr]k-[A-Za-z0-9_-]{20,}|gh[opsu]_[A-Za-z0-9]{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abp]-[\w-]{10,}|AKIA[A-Z0-9]{16})",
    re.ASCII,
)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what may be shown of the environment, in alphabetical order."""
    shown = {name: plain(variables[name]) for name in allowlist.VARIABLES & variables.keys()}
    shown |= {name: file_names(variables[name]) for name in allowlist.FILE_LISTS & variables.keys()}
    return dict(sorted(shown.items()))


def plain(text: str) -> str:
    """Return a value that is no path, URL or JSON; else :data:`HIDDEN`."""
    return text if _fits(PLAIN, text) else HIDDEN


def path(text: str) -> str:
    """Return a relative path or a hub's name, the last part of an absolute path, or else HIDDEN.

    A result of this function is returned unchanged.
    """
    text = text.replace(f"{HIDDEN}/", "/", 1) if text.startswith(HIDDEN) else text
    if not _fits(PATH, text):  # URLs have a colon
        return HIDDEN
    return text if not text.startswith("/") else f"{HIDDEN}/{PurePosixPath(text).name}"


def file_names(text: str) -> str:
    """Return file names that are separated by colons or spaces, without their folders."""
    names = [PurePosixPath(item).name for item in re.split(r"[:\s]+", text) if item]
    return ":".join(name if _fits(FILE, name) else HIDDEN for name in names)


def options(values: Any, key: str = "") -> Any:
    """Return what may be shown of a JSON value, e.g. of ``--speculative-config``.

    Args:
        values: the value, or a part of it.
        key: the allowed key that it belongs to; empty at the top, where only objects are shown.
    """
    if isinstance(values, Mapping):
        return {_key(name): _value(name, value) for name, value in values.items()}
    if not key:
        return values if values is None else HIDDEN
    if isinstance(values, list | tuple):
        return [options(value, key) for value in values]
    if isinstance(values, str):
        return (path if key in allowlist.PATH_KEYS else plain)(values)
    return values if values is None or isinstance(values, bool | int | float) else HIDDEN


def _key(name: Any) -> str:
    return name if isinstance(name, str) and _fits(KEY_NAME, name) else HIDDEN


def _value(name: Any, value: Any) -> Any:
    key = name.replace("-", "_") if isinstance(name, str) else ""
    return options(value, key) if key in allowlist.PATH_KEYS | allowlist.PLAIN_KEYS else HIDDEN


def json_text(text: str) -> str:
    """Return what may be shown of an option's JSON, as JSON."""
    try:
        return json.dumps(options(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return HIDDEN


# How to show the value of an option.
KINDS = {
    **dict.fromkeys(allowlist.PLAIN_OPTIONS, plain),
    **dict.fromkeys(allowlist.PATH_OPTIONS, path),
    **dict.fromkeys(allowlist.JSON_OPTIONS, json_text),
}


def arguments(argv: Sequence[str]) -> list[str]:
    """Return what may be shown of a command line, without the command itself.

    An option that is not allowed is shown without its value, whatever the value looks like.
    """
    shown: list[str] = []
    taker: str | None = None  # the option that takes the next argument
    for argument in argv:
        name, is_joined, value = argument.partition("=")
        is_known = name in KINDS or argument in allowlist.FLAGS
        if taker is not None and not is_known:
            shown.append(KINDS[taker](argument) if taker in KINDS else HIDDEN)
            taker = None
        elif not argument.startswith("-"):
            shown.append(argument if argument in allowlist.COMMANDS else HIDDEN)
        elif is_joined:
            shown.append(f"{_option(name)}={KINDS.get(name, _hide)(value)}")
            taker = None
        else:
            shown.append(_option(name))
            taker = None if argument in allowlist.FLAGS else name
    return shown


def _option(name: str) -> str:
    return name if _fits(OPTION_NAME, name) else HIDDEN


def _hide(value: str) -> str:
    return HIDDEN


def _fits(form: re.Pattern[str], text: str) -> bool:
    return len(text) <= LONGEST and bool(form.fullmatch(text)) and not TOKEN.search(text)
