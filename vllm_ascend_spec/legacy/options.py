"""Find old options among the words of a command, and what replaces them today."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.legacy.names import BY_FLAG, Legacy, Modern, given_of, modern
from vllm_ascend_spec.legacy.shell import Word

NEW = "--speculative-config"
# Options that replace the old ones; vLLM has short forms too.
MODERN = (NEW, "-sc", "--spec-method", "--spec-model", "--spec-tokens")
VARIABLE = re.compile(r"\$\{(\w+)\}|\$\((\w+)\)|\$(\w+)")


@dataclass(frozen=True)
class LegacyOption:
    """An old option of a command.

    Attributes:
        option: which one.
        value: its value as the program receives it; None for a flag without one.
        first: index of its first word in the command.
        last: index of its last word.
        is_live: whether the value has variables that are expanded later.
    """

    option: Legacy
    value: str | None
    first: int
    last: int
    is_live: bool


@dataclass(frozen=True)
class Replacement:
    """What replaces the old options of a command.

    Attributes:
        found: the old options.
        anchor: the old option that the new one replaces; None if there is no new one.
        json: value of ``--speculative-config``; None for none.
        is_live: whether that value has variables that are expanded later.
        notes: notes for the user.
    """

    found: Sequence[LegacyOption]
    anchor: LegacyOption | None
    json: str | None
    is_live: bool
    notes: tuple[str, ...]


def flag_of(text: str) -> str:
    """Return the name of an option with dashes; vLLM accepts underscores too."""
    name = text.partition("=")[0]
    return f"--{name[2:].replace('_', '-')}" if name.startswith("--") else name


def filled_in(text: str, known: Mapping[str, str]) -> str:
    """Return a text with its known variables expanded."""
    return VARIABLE.sub(lambda m: known.get(m[1] or m[2] or m[3], m[0]), text)


def find(words: Sequence[Word]) -> list[LegacyOption]:
    """Return the old options among the words of a command.

    Raises:
        ConfigError: one has no value.
    """
    found, place = [], 0
    while place < len(words):
        word = words[place]
        option = BY_FLAG.get(flag_of(word.text))
        first, place = place, place + 1
        if option is None:
            continue
        _, is_joined, value = word.text.partition("=")
        if is_joined:
            found.append(LegacyOption(option, value, first, first, word.is_live))
        elif option.parse is not None and not _stands_alone(option, words[place:]):
            if place == len(words):
                raise ConfigError(option.flag, None, "has no value")
            found.append(
                LegacyOption(option, words[place].text, first, place, words[place].is_live)
            )
            place += 1
        else:
            found.append(LegacyOption(option, option.alone, first, first, False))
    return found


def _stands_alone(option: Legacy, after: Sequence[Word]) -> bool:
    """Tell whether an option that may have a value has none."""
    return option.alone is not None and (not after or after[0].text.startswith("-"))


def replacement(words: Sequence[Word], known: Mapping[str, str]) -> Replacement | None:
    """Return what replaces the old options of a command; None if it has none.

    Args:
        words: words of the command.
        known: values of variables, as far as they are known.

    Raises:
        ConfigError: old options contradict each other or new ones, or say too little.
    """
    found = find(words)
    if not found:
        return None
    is_modern = any(flag_of(word.text) in MODERN for word in words)
    given: dict[str, Any] = {}
    for one in found:
        if one.option.name in given:
            raise ConfigError(one.option.flag, one.value, "is given twice; leave one out")
        given[one.option.name] = _value(one, known)
    given = given_of(given)
    result = modern(given, {} if is_modern else None, _target(words, known))
    live = {str(one.option.key): str(one.value) for one in found if one.is_live}
    notes = _notes(found, result)
    if not result.spec:
        return Replacement(found, None, None, False, notes)
    anchor = next(one for one in found if one.option.key and one.option.name in given)
    is_live = bool(live.keys() & result.spec.keys())
    return Replacement(found, anchor, _json(result.spec, live), is_live, notes)


def _target(words: Sequence[Word], known: Mapping[str, str]) -> str | None:
    """Return the target that a command names."""
    texts = [filled_in(word.text, known) for word in words]
    for text, after in zip(texts, [*texts[1:], ""], strict=True):
        name, is_joined, value = text.partition("=")
        if name == "--model":
            return value if is_joined else after
        if name == "serve" and not after.startswith("-"):
            return after
    return None


def _value(found: LegacyOption, known: Mapping[str, str]) -> Any:
    """Return the value of an option, with its known variables expanded."""
    text = found.value
    if text is None:
        return True
    if found.is_live:
        text = filled_in(text, known)
        if "$" in text or "`" in text:
            return text
    return found.option.parsed(text)


def _json(spec: Mapping[str, Any], live: Mapping[str, str]) -> str:
    items = (f"{json.dumps(key)}: {_written(key, spec[key], live)}" for key in spec)
    return f"{{{', '.join(items)}}}"


def _written(key: str, value: Any, live: Mapping[str, str]) -> str:
    if key not in live:
        return json.dumps(value, ensure_ascii=False)
    # No quotes around a variable that stands for a number.
    is_number = any(one.key == key and one.parse is int for one in BY_FLAG.values())
    return live[key] if is_number else f'"{live[key]}"'


def _notes(found: Sequence[LegacyOption], result: Modern) -> tuple[str, ...]:
    guessed = [f"taken as {clause}" for clause in result.guessed]
    gone = [f"{name} has no effect any more, left out" for name in result.without_effect]
    unknown = [
        f"{one.option.flag} {one.value} is filled in later: check that the method fits it"
        for one in found
        if one.is_live and one.option.name == "speculative_model" and result.guessed
    ]
    return (*guessed, *unknown, *gone)
