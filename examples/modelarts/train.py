"""Train a draft head in a ModelArts training job (训练作业), by `vllm-ascend-spec train`.

The job's inputs, its output and its hyperparameters are the command's options; docs/modelarts.md
lists them. `data_url` and `train_url`, which the console offers, stand for prompts and output.
An input may also come as an environment variable of its name, as the console lets one choose.

The command is printed; `ASCEND_SPEC_PRINT_ONLY=true` ends it there. A job that is started again
with the same output goes on where it ended. Only Python's standard library is needed here.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence

PROGRAM = "vllm-ascend-spec"
# By the name that the console offers.
OTHER_NAMES = {"data_url": "prompts", "train_url": "output"}
# These may be environment variables, too.
PATHS = ("model", "prompts", "output", "from")
NEEDED = ("model", "prompts", "output")
# What an option that takes no value begins with, by the value that it has in the console.
SWITCHES = {"true": "--", "false": "--no-"}
# A preset image starts this file once per card, with these. The trainer starts its own processes,
# for which they would be wrong.
OF_A_CARD = ("ASCEND_DEVICE_ID", "RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE")


class SettingError(Exception):
    """A setting is missing or wrong; the message names it and what is valid."""


def read(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their names.

    Raises:
        SettingError: a word is no `--name=value`, or a path is missing.
    """
    found = {name: environment[name] for name in PATHS if environment.get(name)}
    for given, option in OTHER_NAMES.items():
        if environment.get(given):
            found.setdefault(option, environment[given])
    for word in words:
        name, is_joined, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not is_joined:
            raise SettingError(f"{word}: valid: --name=value, as ModelArts hands parameters over")
        name = name.replace("-", "_")
        found[OTHER_NAMES.get(name, name)] = value
    for name in NEEDED:
        if not found.get(name):
            raise SettingError(
                f"--{name}: not set; valid: an input or output of the job, --{name}=…"
            )
    return found


def command(options: Mapping[str, str], cards: int) -> list[str]:
    """Return the command.

    Args:
        options: by name.
        cards: NPUs of this machine.
    """
    given = dict(options)
    made = [PROGRAM, "train", given.pop("model")]
    if cards > 1:
        given.setdefault("nproc_per_node", str(cards))
    for name, value in given.items():
        option, prefix = name.replace("_", "-"), SWITCHES.get(value.lower())
        if prefix is not None:
            made.append(f"{prefix}{option}")
        else:
            made += [f"--{option}", *([value] if value else [])]
    return made


def number(name: str, environment: Mapping[str, str]) -> int:
    """Return what a variable of ModelArts says, 1 where it is not set.

    Raises:
        SettingError: it is no number from 1 on.
    """
    value = environment.get(name) or "1"
    if not value.isdecimal() or int(value) < 1:
        raise SettingError(f"{name}={value}: valid: a number from 1 on")
    return int(value)


def main(words: Sequence[str]) -> int:
    """Print the command and become it, once on the machine."""
    if os.environ.get("ASCEND_DEVICE_ID", "0") != "0":
        return 0
    try:
        if (hosts := number("MA_NUM_HOSTS", os.environ)) > 1:
            raise SettingError(f"MA_NUM_HOSTS={hosts}: valid: 1; a head is trained on one machine")
        made = command(read(words, os.environ), number("MA_NUM_GPUS", os.environ))
    except SettingError as error:
        sys.stderr.write(f"train.py: error: {error}\n")
        return 2
    sys.stdout.write(shlex.join(made) + "\n")
    sys.stdout.flush()
    if os.environ.get("ASCEND_SPEC_PRINT_ONLY", "").lower() in ("1", "true", "yes", "on"):
        return 0
    for name in OF_A_CARD:
        os.environ.pop(name, None)
    try:
        os.execvp(PROGRAM, made)
    except FileNotFoundError:
        sys.stderr.write(f"train.py: error: {PROGRAM} is not on PATH; install vllm-ascend-spec\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
