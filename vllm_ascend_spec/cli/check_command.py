"""Arguments of ``vllm-ascend-spec check``: flags of ``vllm serve``, or a whole command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath

from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.devices import registry, select
from vllm_ascend_spec.errors import ConfigError, did_you_mean
from vllm_ascend_spec.legacy.rewrite import ASSIGNMENT

END = "--"
PROGRAMS = ("vllm", "vllm-ascend-spec")
MODULE = "vllm.entrypoints.openai.api_server"
COMMANDS = f"valid: [NAME=VALUE …] vllm serve MODEL …, or python -m {MODULE} --model MODEL …"
MODEL = "is missing; give the target first: vllm-ascend-spec check MODEL [flags of vllm serve]"


@dataclass(frozen=True)
class CheckTarget:
    """The server command to check.

    Attributes:
        arguments: arguments after ``vllm serve``.
        environment: variables that the command sets for itself.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def asked_of(words: Sequence[str]) -> CheckTarget:
    """Return what the command line asks to check.

    Raises:
        ConfigError: there are no arguments, or the command starts no server.
    """
    words = list(words)
    if not words:
        raise ConfigError("MODEL", None, MODEL)
    if words[0] == END:
        return _of_command(words[1:])
    if is_server(words[0], words[1:2]):
        return _of_command(words)
    if END in words:
        problem = "a command after -- must be the only argument; leave out what is before it"
        raise ConfigError("MODEL", words[0], problem)
    return CheckTarget(words)


def is_server(word: str, after: Sequence[str]) -> bool:
    """Tell whether a word and the one after it start a server."""
    return PurePath(word).name in PROGRAMS and list(after) == ["serve"]


def _of_command(words: list[str]) -> CheckTarget:
    given = words
    if len(words) == 1 and " " in words[0]:
        try:
            words = shlex.split(words[0].replace("\\\n", " "), comments=True)
        except ValueError as error:
            value = redact(words[0], given)  # a secret cut in two would be missed later
            raise ConfigError("COMMAND", value, f"cannot be read: {error}") from None
    for place, word in enumerate(words):
        after = words[place + 1 : place + 2]
        is_program = is_server(word, after)
        if is_program or word == MODULE:
            assigned = filter(None, map(ASSIGNMENT.fullmatch, words[:place]))
            rest = words[place + (2 if is_program else 1) :]
            if not rest:
                raise ConfigError("MODEL", None, "is missing in the command")
            return CheckTarget(rest, {match[1]: match[2] for match in assigned})
    value = redact(shlex.join(words), [*given, *words])
    raise ConfigError("COMMAND", value, f"starts no server; {COMMANDS}")


@contextmanager
def variables(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the context."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def on_device(name: str | None) -> Iterator[None]:
    """Set the device variable within the context, or unset it for None."""
    before = os.environ.pop(select.DEVICE_VARIABLE, None)
    try:
        with variables({} if name is None else {select.DEVICE_VARIABLE: name}):
            yield
    finally:
        if before is not None:
            os.environ[select.DEVICE_VARIABLE] = before


def device_here(own: str | None) -> Device | None:
    """Return the kind of device that vLLM uses on this machine, whichever is checked.

    Args:
        own: the device variable before ``--device`` and the command's own variables are set.
    """
    named = None if own is None else registry.all_devices().get(own)
    if named is not None and named.host_problem() is None:
        return named
    with on_device(None):
        return select.find_device()


def device_variable(name: str | None) -> dict[str, str]:
    """Return the environment variable that ``--device`` stands for.

    Raises:
        ConfigError: there is no such kind of device.
    """
    if name is None:
        return {}
    if name not in (known := registry.all_devices()):
        problem = f"{did_you_mean(name, known)}valid: {', '.join(known)}"
        raise ConfigError("--device", name, problem)
    return {select.DEVICE_VARIABLE: name}
