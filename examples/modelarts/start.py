"""Start `vllm serve` with settings from the environment, as ModelArts hands them to a container.

It prints the command `vllm serve …` that the settings come to; `ASCEND_SPEC_PRINT_ONLY=true` ends
it there. Else it becomes `vllm-ascend-spec serve` with the same words, which sets what the plugin
needs and becomes the printed command: beside vllm-ascend the plugin has to be named in
VLLM_PLUGINS, or vllm-ascend's own drafting would run.
docs/modelarts.md lists the settings. Only Python's standard library is needed here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

PREFIX = "ASCEND_SPEC_"
# Its command `serve` becomes `vllm serve`.
PROGRAM = "vllm-ascend-spec"
# Behind this one stands the name of any option of `vllm serve`.
ARGUMENT = "ARG_"
# Where ModelArts mounts a model.
MOUNTED = "/home/mind/model"
# By method, whether a draft has a folder of its own: True, False, or None for either.
METHODS: dict[str, bool | None] = {
    "draft_model": True,
    "eagle": True,
    "eagle3": True,
    "medusa": True,
    "mlp_speculator": True,
    "dflash": True,
    "dspark": True,
    "mtp": None,
    # Its model may be the target's own MTP layers.
    "hybrid": None,
    "ngram": False,
    "suffix": False,
    "none": False,
}
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class SettingError(Exception):
    """A setting is missing or wrong; the message names it, its value and what is valid."""


def text(value: str) -> str:
    """Return a text as it is."""
    return value


def number(value: str) -> int:
    """Return a number above zero.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"[1-9][0-9]*", value):
        raise ValueError("a number from 1 on")
    return int(value)


def port(value: str) -> int:
    """Return a port.

    Raises:
        ValueError: it is none.
    """
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise ValueError("a port, 1 to 65535")
    return int(value)


def switch(value: str) -> bool:
    """Return whether something is on.

    Raises:
        ValueError: it says neither.
    """
    if value.lower() not in YES + NO:
        raise ValueError("true or false")
    return value.lower() in YES


def method(value: str) -> str:
    """Return a drafting method.

    Raises:
        ValueError: there is none of that name.
    """
    if value not in METHODS:
        raise ValueError(", ".join(METHODS))
    return value


def mapping(value: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError('a JSON object, as {"name": 1}')
    return found


def words(value: str) -> list[str]:
    """Return words as a shell reads them.

    Raises:
        ValueError: a quotation has no end.
    """
    try:
        return shlex.split(value)
    except ValueError:
        raise ValueError("words with whole quotations") from None


def file(value: str) -> str:
    """Return the path of a file.

    Raises:
        ValueError: there is none.
    """
    if not Path(value).is_file():
        raise ValueError("a file that is there")
    return value


@dataclass(frozen=True)
class Setting:
    """A variable, without its prefix.

    Attributes:
        read: makes a value of its text, or raises a ValueError that says what is valid.
        default: where it is not set or empty; None for nothing.
    """

    read: Callable[[str], Any] = text
    default: Any = None


SETTINGS: dict[str, Setting] = {
    "MODEL": Setting(default=MOUNTED),
    "NAME": Setting(),
    "HOST": Setting(default="0.0.0.0"),
    "PORT": Setting(port, 8080),
    "CERT": Setting(file),
    "KEY": Setting(file),
    "API_KEY": Setting(),
    "METHOD": Setting(method, "none"),
    "DRAFT": Setting(),
    "TOKENS": Setting(number),
    "DRAFT_TP": Setting(number),
    "DISABLE_BY_BATCH_SIZE": Setting(number),
    "SPECULATIVE": Setting(mapping, {}),
    "OPTIONS": Setting(mapping, {}),
    "EXTRA": Setting(words, []),
    "PRINT_ONLY": Setting(switch, False),
}
# Settings that are options of `vllm serve`.
FLAGS = {
    "HOST": "--host",
    "PORT": "--port",
    "NAME": "--served-model-name",
    "CERT": "--ssl-certfile",
    "KEY": "--ssl-keyfile",
}
# Settings that are keys of --speculative-config.
IN_CONFIG = {
    "DRAFT": "model",
    "TOKENS": "num_speculative_tokens",
    "DRAFT_TP": "draft_tensor_parallel_size",
    "DISABLE_BY_BATCH_SIZE": "disable_by_batch_size",
}


def read(environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings, and the options of ``vllm serve`` by their names.

    Raises:
        SettingError: one is wrong or unknown.
    """
    values = {name: setting.default for name, setting in SETTINGS.items()}
    options = {}
    for variable, given in sorted(environment.items()):
        if not variable.startswith(PREFIX) or given == "":
            continue
        name = variable.removeprefix(PREFIX)
        if name.startswith(ARGUMENT):
            options[name.removeprefix(ARGUMENT).lower().replace("_", "-")] = given
        elif name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, n=1)
            valid = [near[0]] if near else [*SETTINGS, f"{ARGUMENT}…"]
            names = ", ".join(PREFIX + other for other in valid)
            raise SettingError(f"{variable} is no setting; valid: {names}")
        else:
            values[name] = convert(variable, given, SETTINGS[name])
    return values, options


def convert(variable: str, given: str, setting: Setting) -> Any:
    """Return the value of one variable.

    Raises:
        SettingError: it is wrong.
    """
    try:
        return setting.read(given)
    except ValueError as error:
        shown = "…" if variable == f"{PREFIX}API_KEY" else repr(given[:100])
        raise SettingError(f"{variable}={shown}; valid: {error}") from None


def check(values: Mapping[str, Any]) -> None:
    """Check settings against each other.

    Raises:
        SettingError: some do not go together, or one is missing.
    """
    chosen, draft = values["METHOD"], values["DRAFT"]
    for name in ("MODEL", *(("DRAFT",) if draft else ())):
        path = Path(values[name])
        if path.is_absolute() and not (path / "config.json").is_file():
            raise SettingError(f"{PREFIX}{name}={str(path)!r}; valid: a folder with a config.json")
    if (values["CERT"] is None) != (values["KEY"] is None):
        raise SettingError(f"{PREFIX}CERT and {PREFIX}KEY go together; one of them is not set")
    if METHODS[chosen] and not draft:
        raise SettingError(
            f"{PREFIX}DRAFT is not set; {PREFIX}METHOD={chosen} needs the draft's folder"
        )
    if METHODS[chosen] is False and draft:
        raise SettingError(f"{PREFIX}DRAFT={draft!r}; {PREFIX}METHOD={chosen} has no draft model")
    if chosen == "none":
        for name in (*IN_CONFIG, "SPECULATIVE", "OPTIONS"):
            if values[name]:
                raise SettingError(f"{PREFIX}{name} has no effect without {PREFIX}METHOD")
    elif not values["TOKENS"] and "num_speculative_tokens" not in values["SPECULATIVE"]:
        raise SettingError(f"{PREFIX}TOKENS is not set; valid: drafts for each step, from 1 on")
    for name, key in IN_CONFIG.items():
        if values[name] and values["SPECULATIVE"].get(key, values[name]) != values[name]:
            raise SettingError(f"{PREFIX}{name} and {key!r} in {PREFIX}SPECULATIVE differ")


def command(values: Mapping[str, Any], options: Mapping[str, str]) -> list[str]:
    """Return the words of the command."""
    made = [
        "vllm",
        "serve",
        values["MODEL"],
        "--host",
        values["HOST"],
        "--port",
        str(values["PORT"]),
    ]
    for name, flag in (
        ("NAME", "--served-model-name"),
        ("CERT", "--ssl-certfile"),
        ("KEY", "--ssl-keyfile"),
    ):
        if values[name]:
            made += [flag, values[name]]
    if values["METHOD"] != "none":
        spec = {"method": values["METHOD"]}
        spec |= {key: values[name] for name, key in IN_CONFIG.items() if values[name]}
        made += ["--speculative-config", json.dumps({**spec, **values["SPECULATIVE"]})]
    if values["OPTIONS"]:
        made += ["--additional-config", json.dumps({"ascend_spec": values["OPTIONS"]})]
    for name, given in options.items():
        # Switches of vLLM have no value, and --no- before them where they are off.
        if given.lower() in ("true", "false"):
            made.append(f"--{name}" if given.lower() == "true" else f"--no-{name}")
        else:
            made += [f"--{name}", given]
    return [*made, *values["EXTRA"]]


def main() -> int:
    """Print the command of vLLM, and become it by way of our own."""
    try:
        values, options = read(os.environ)
        check(values)
    except SettingError as error:
        sys.stderr.write(f"start.py: error: {error}\n")
        return 2
    made = command(values, options)
    sys.stdout.write(shlex.join(made) + "\n")
    sys.stdout.flush()
    if values["PRINT_ONLY"]:
        return 0
    # A key on the command line would be seen by everybody on the machine.
    if values["API_KEY"]:
        os.environ["VLLM_API_KEY"] = values["API_KEY"]
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    try:
        os.execvp(PROGRAM, [PROGRAM, *made[1:]])
    except FileNotFoundError:
        sys.stderr.write(f"start.py: error: {PROGRAM} is not on PATH; install vllm-ascend-spec\n")
        return 127


if __name__ == "__main__":
    sys.exit(main())
