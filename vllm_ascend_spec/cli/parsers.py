"""The parser of a command; of some the words that are not their own are handed on as they are."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from vllm_ascend_spec.cli.examples import EXAMPLES
from vllm_ascend_spec.errors import did_you_mean

END = "--"


class CommandParser(argparse.ArgumentParser):
    """Takes its own options, and hands all other words on.

    Attributes:
        passes_on: whether it does; else it is argparse's.
    """

    passes_on = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; what is handed on becomes ``arguments``, in its order."""
        if not self.passes_on or args is None:
            return super().parse_known_args(args, namespace)
        own, handed = self.split(args)
        found, _ = super().parse_known_args(own, namespace)
        found.arguments = handed
        return found, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is none of an option's choices, as argparse does, with the nearest one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = did_you_mean(value, map(str, action.choices or ()))
            said = f"{error.message}; {near}" if near else error.message
            raise argparse.ArgumentError(action, said.rstrip()) from None

    def split(self, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the command's own words, and all others; behind ``--`` none is its own."""
        own: list[str] = []
        handed: list[str] = []
        words = iter(args)
        for word in words:
            name, is_joined, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if word == END:
                handed += [word, *words]
            elif action is None:
                handed.append(word)
            else:
                own.append(word)
                if action.nargs != 0 and not is_joined:
                    own += [value for value in [next(words, None)] if value is not None]
        return own, handed


def commands_in(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield every parser below one, with the words that lead to it; those of ``bench`` are two."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands_in(inner, (*path, name))


def unknown(parser: argparse.ArgumentParser, command: str, words: Sequence[str]) -> str:
    """Return what to say of words that a command does not know.

    Args:
        parser: of all commands.
        command: that was called.
        words: at least one, in which no secret may be shown.
    """
    options = [
        option
        for path, inner in commands_in(parser)
        if path[:1] == (command,)
        for option in inner._option_string_actions
    ]
    flag = words[0].partition("=")[0]
    near = did_you_mean(flag, options) if flag.startswith("-") else ""
    return f"unrecognized arguments: {' '.join(words)}" + (f"; {near.rstrip()}" if near else "")


def add_examples(parser: argparse.ArgumentParser) -> None:
    """Let the help of every command end with its examples."""
    for path, command in commands_in(parser):
        lines = textwrap.indent("\n".join(EXAMPLES.get(path, ())), "  ")
        command.epilog = f"examples:\n{lines}" if lines else None
        command.formatter_class = argparse.RawDescriptionHelpFormatter
