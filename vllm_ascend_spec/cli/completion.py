"""``vllm-ascend-spec completion``: print a shell's completion script for this command."""

from __future__ import annotations

import argparse
import sys

from vllm_ascend_spec.cli import check_light
from vllm_ascend_spec.cli.parsers import commands_in
from vllm_ascend_spec.devices import registry as devices
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods import registry as methods
from vllm_ascend_spec.training.methods import METHODS

HELP = "print a script for bash, zsh or fish that completes commands, options and values"
SHELLS = ("bash", "zsh", "fish")
MISSING = (
    "needs the package shtab, which writes the script: pip install 'vllm-ascend-spec[completion]'"
)
# Commands that take vLLM's arguments: its flags that matter to speculation are offered.
WITH_FLAGS = (("check",), ("serve",))
FILES = ("prompts", "record", "output", "step_times", "peer_python", "old", "config")
FOLDERS = ("model", "spec_model", "speculative_model", "begin_with", "tokenizer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that will read the script")


def offered() -> dict[tuple[tuple[str, ...], str], list[str]]:
    """Return the values to offer, by command path and option name."""
    found: dict[tuple[tuple[str, ...], str], list[str]] = {
        (path, name): list(methods.all_methods())
        for path in WITH_FLAGS
        for name in ("spec_method", "speculative_method")
    }
    return {
        **found,
        (("check",), "device"): list(devices.all_devices()),
        (("train",), "method"): list(METHODS),
        (("bench", "serve"), "modes"): ["eager", "compiled", "eager,compiled"],
    }


def run(args: argparse.Namespace) -> int:
    """Print the script.

    Raises:
        ConfigError: the package ``shtab``, which writes it, is missing.
    """
    try:
        import shtab
    except ImportError:
        raise ConfigError("SHELL", args.shell, MISSING) from None
    parser = described()
    for _, command in commands_in(parser):
        for action in command._actions:
            if action.dest in FILES + FOLDERS:
                kind = shtab.FILE if action.dest in FILES else shtab.DIRECTORY
                vars(action)["complete"] = kind
    sys.stdout.write(shtab.complete(parser, shell=args.shell).rstrip() + "\n")
    return 0


def described() -> argparse.ArgumentParser:
    """Return the parser of all commands, with the values to offer as choices."""
    from vllm_ascend_spec.cli.main import build_parser

    parser = build_parser()
    values = offered()
    for path, command in commands_in(parser):
        if path in WITH_FLAGS:
            check_light.add_flags(command)
        for action in command._actions:
            if (path, action.dest) in values:
                action.choices = values[path, action.dest]
    return parser
