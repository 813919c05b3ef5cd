"""Argument parser of the commands; some pass arguments that are not their own on to vLLM."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vllm_ascend_spec.cli.examples import EXAMPLES
from vllm_ascend_spec.errors import did_you_mean

END = "--"


class CommandParser(argparse.ArgumentParser):
    """Parser that takes its own options and can pass all other arguments on.

    Attributes:
        passes_on: whether other arguments are passed on; False for plain argparse.
        takes_rest: whether arguments after ``--`` are taken, unread, as ``rest``.
        moved: old options and where they went; each is rejected in one line.
    """

    passes_on = False
    takes_rest = False
    moved: Mapping[str, str] = {}

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the options; arguments passed on become ``arguments``, in their order."""
        if self.takes_rest and args is not None:
            end = args.index(END) if END in args else len(args)
            found, unknown_words = super().parse_known_args(args[:end], namespace)
            found.rest = [*args[end + 1 :]]
            return found, unknown_words
        if not self.passes_on or args is None:
            parsed, rest = super().parse_known_args(args, namespace)
            for word in rest:
                if went := self.moved.get(word.partition("=")[0]):
                    self.exit(2, f"{self.prog}: error: {word.partition('=')[0]} {went}\n")
            return parsed, rest
        own, handed = self.split(args)
        found, _ = super().parse_known_args(own, namespace)
        found.arguments = handed
        return found, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reject a value that is not a choice, as argparse does, and suggest the nearest one.

        An action with ``moved``, old choices and where they went, rejects those in one line.
        """
        for name, went in getattr(action, "moved", {}).items():
            if value == name:
                self.exit(2, f"{self.prog}: error: {went}\n")
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = did_you_mean(value, map(str, action.choices or ()))
            said = f"{error.message}; {near}" if near else error.message
            raise argparse.ArgumentError(action, said.rstrip()) from None

    def split(self, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split into the command's own arguments and all others; after ``--`` all are others."""
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
    """Yield a parser and its subparsers with their command paths, e.g. ``("bench", "serve")``."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands_in(inner, (*path, name))


def unknown(parser: argparse.ArgumentParser, command: str, words: Sequence[str]) -> str:
    """Return the error message for arguments that a command does not know.

    Args:
        parser: parser of all commands.
        command: name of the command that was called.
        words: the unknown arguments, at least one, already without secrets.
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
