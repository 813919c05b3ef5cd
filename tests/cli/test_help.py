"""The examples of every command's help are commands that the command takes; some are run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_ascend_spec.cli.examples import EXAMPLES
from vllm_ascend_spec.cli.main import COMMANDS, build_parser, main
from vllm_ascend_spec.cli.parsers import commands_in

PROGRAM = "vllm-ascend-spec"
# Options after which a command prints and ends, in whatever it is.
HELP = ("--help", "--help=all")
# What a CPU runs without an engine, by its first words. test_info.py runs `info`, test_check.py
# `check`, which asks vLLM.
RUN = ("env", "plan", "migrate -- ", "completion")
ALL = [(path, example) for path, examples in EXAMPLES.items() for example in examples]


def words_of(example: str) -> list[str]:
    """Return the words of our command in an example, without redirections."""
    text = example.replace("\\\n", " ").partition(" > ")[0].partition(" < ")[0]
    if inner := re.fullmatch(r'eval "\$\((.*)\)"', text):
        text = inner[1]
    command, *words = shlex.split(text)
    assert command == PROGRAM
    return words


def test_every_command_has_examples() -> None:
    assert {path for path, _ in commands_in(build_parser())} == set(EXAMPLES)
    assert {path[0] for path in EXAMPLES if path} == set(COMMANDS)


@pytest.mark.parametrize("path", EXAMPLES, ids=" ".join)
def test_help_shows_them(
    path: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if path == ("serve",):  # its --help is vLLM's
        (printed,) = (
            parser.format_help() for name, parser in commands_in(build_parser()) if name == path
        )
    else:
        with pytest.raises(SystemExit) as end:
            main([*path, "--help"])
        assert end.value.code == 0
        printed = capsys.readouterr().out
    for example in EXAMPLES[path]:
        for line in example.splitlines():
            assert f"  {line}\n" in printed
            assert len(line) <= 108


@pytest.mark.parametrize(("path", "example"), ALL, ids=lambda value: str(value)[:60])
def test_an_example_is_taken(path: tuple[str, ...], example: str) -> None:
    """Each is of the command under which it stands, and its options are there."""
    words = words_of(example)
    assert tuple(words[: len(path)]) == path
    if words[-1] in HELP and words[0] != "serve":
        with pytest.raises(SystemExit) as end:
            build_parser().parse_args(words)
        assert end.value.code == 0
    else:
        build_parser().parse_args(words)


def runs() -> Iterator[str]:
    """Yield those that are run, each once."""
    for words in dict.fromkeys(tuple(words_of(example)) for _, example in ALL):
        if " ".join(words).startswith(RUN) and words[-1] not in HELP:
            yield shlex.join(words)


@pytest.mark.parametrize("example", [*runs()], ids=lambda text: text[:60])
def test_an_example_runs(example: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(shlex.split(example)) == 0
    output = capsys.readouterr()
    assert output.out or "nothing has to be set" in output.err
