"""The commands and their options, from their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial

from tests.docs.figures.rows import row
from vllm_ascend_spec.cli.main import build_parser
from vllm_ascend_spec.cli.parsers import commands_in

COMMANDS = {path: parser for path, parser in commands_in(build_parser()) if path}


def names() -> Iterator[str]:
    """Yield a command and what it does."""
    parents = {(): build_parser(), **COMMANDS}
    for path in COMMANDS:
        parent = parents[path[:-1]]
        about = {
            choice.dest: choice.help
            for action in parent._actions
            if isinstance(action, argparse._SubParsersAction)
            for choice in action._choices_actions
        }
        yield row(f"`{' '.join(path)}`", str(about[path[-1]]).replace("|", "\\|"))


def tables() -> dict[str, Callable[[], Iterator[str]]]:
    """Return a table of options for each command that has any, by its name."""
    return {
        f"command-{'-'.join(path)}": partial(_options, path)
        for path, parser in COMMANDS.items()
        if list(_shown(parser))
    }


def _shown(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return (action for action in parser._actions if not isinstance(action, hidden))


def _options(path: tuple[str, ...]) -> Iterator[str]:
    parser = COMMANDS[path]
    for action in _shown(parser):
        about = parser._get_formatter()._expand_help(action)
        yield row(*(cell.replace("|", "\\|") for cell in (_words(action), _default(action), about)))


def _words(action: argparse.Action) -> str:
    """Return an option's names, the last with what stands for its value."""
    value = action.metavar or "|".join(map(str, action.choices or ()))
    *names, last = action.option_strings or [str(value)]
    last = f"{last} {value}" if action.option_strings and value else last
    return ", ".join(f"`{word}`" for word in (*names, last))


def _default(action: argparse.Action) -> str:
    value = action.default
    if value is True:
        return "on"
    is_given = action.option_strings and value is not None and value is not False
    return f"`{value}`" if is_given else "–"
