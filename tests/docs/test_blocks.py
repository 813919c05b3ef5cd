"""Every block is classified, and the documents in two languages have the same ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.docs import table
from tests.docs.blocks import (
    ROOT,
    SHELL,
    Block,
    Command,
    all_blocks,
    all_commands,
    blocks_in,
    blocks_of,
    commands_of,
    documents,
    inline_code,
)

COMMANDS = all_commands()
EMULATORS = [path for path in documents() if path.name.endswith(".zh.md")]
NOT_RUN = [command for command in COMMANDS if isinstance(table.how(command), table.NotRun)]
TREATED = [block for block in all_blocks() if table.row_of(block)]
INLINE = ("make ", "vllm-ascend-spec ")


def name_of(thing: Command | Block) -> str:
    return f"{thing.where} {thing.text[:50]}"


def unclassified(blocks: list[Block]) -> list[str]:
    """Return the blocks and commands that are neither run nor in the table."""
    missing = []
    for block in blocks:
        if block.language in SHELL:
            missing += [name_of(c) for c in commands_of(block) if table.how(c) is None]
        elif block.language != "python" and table.row_of(block) is None:
            missing.append(name_of(block))
    return missing


def test_every_block_is_run_or_in_the_table() -> None:
    blocks = all_blocks()
    assert len(blocks) > 15
    assert unclassified(blocks) == []


def test_what_is_not_in_the_table_is_found() -> None:
    text = "```bash\nvllm serve x\nrm -rf y\n```\n```toml\na = 1\n```\n\n    frobnicate\n"
    found = unclassified(list(blocks_of(text, "new.md")))
    assert found == ["new.md:1 rm -rf y", "new.md:5 a = 1\n", "new.md:9 frobnicate"]


def test_every_row_is_for_something() -> None:
    assert {table.key_of(command) for command in COMMANDS} == set(table.COMMANDS)
    assert {table.row_of(block) for block in all_blocks()} - {None} == set(table.BLOCKS)


@pytest.mark.parametrize("command", NOT_RUN, ids=name_of)
def test_command_that_is_not_run(command: Command) -> None:
    row = table.how(command)
    assert isinstance(row, table.NotRun)
    assert row.why
    row.check(command.text)


@pytest.mark.parametrize("block", TREATED, ids=name_of)
def test_block_that_is_not_run(block: Block) -> None:
    key = table.row_of(block)
    assert key is not None
    table.BLOCKS[key].check(block.text)


@pytest.mark.parametrize("emulator", EMULATORS, ids=lambda path: path.name)
def test_both_languages_have_the_same_blocks(emulator: Path) -> None:
    english = emulator.with_name(emulator.name.replace(".zh.md", ".md"))
    assert len(EMULATORS) > 7
    ours, theirs = ([block.essence for block in blocks_in(path)] for path in (english, emulator))
    assert ours == theirs


@pytest.mark.parametrize(
    "code", [code for code in inline_code() if code.text.startswith(INLINE)], ids=name_of
)
def test_command_in_the_text_exists(code: Command) -> None:
    """``…`` and ``|`` stand for more; the command and its options have to be there."""
    if "|" in code.text:
        return
    text = code.text.partition("…")[0] if "'" not in code.text else code.text
    command, name, *words = shlex.split(text)
    if command == "make":
        assert re.search(rf"^{re.escape(name)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    from vllm_ascend_spec.cli.bench import MOVED
    from vllm_ascend_spec.cli.main import build_parser

    if code.where.startswith("CHANGELOG") and name == "bench" and words[0] in MOVED:
        return  # of an earlier version
    # `bench …` stands for any benchmark.
    given = [name, *words] if (name, words) != ("bench", []) else ["bench", "serve"]
    build_parser().parse_args(given)


def test_blocks_are_found_where_they_are() -> None:
    text = "1. item\n   ```bash\n   a  # b\n   ```\n\n~~~\nc\n~~~\n\n    d\n"
    blocks = list(blocks_of(text, "x.md"))
    assert [(b.language, b.text, b.where) for b in blocks] == [
        ("bash", "a  # b\n", "x.md:2"),
        ("bash", "c\n", "x.md:6"),
        ("bash", "d\n", "x.md:10"),
    ]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a b  # c\n# d\n\ne\n", ["a b", "e"]),
        ("a \\\n  b '{\"c\": 1}'\n", ["a b '{\"c\": 1}'"]),
        ("a '{1,\n  2}' b\n", ["a '{1,\n  2}' b"]),
        ('eval "$(a b)" && c\n', ['eval "$(a b)" && c']),
        ("a 'b # c'\n", ["a 'b # c'"]),
    ],
)
def test_commands_are_lines_that_a_quote_or_backslash_may_continue(
    text: str, commands: list[str]
) -> None:
    assert [command.text for command in commands_of(Block("bash", text, ""))] == commands


def test_prompts_are_no_part_of_a_command() -> None:
    assert commands_of(Block("console", "$ a b\n", ""))[0].text == "a b"


def test_comments_and_docstrings_are_in_the_documents_language() -> None:
    ours, theirs = 'def f():\n    """Say."""\n    return 1  # one\n', "def f():\n    return 1\n"
    assert Block("python", ours, "a").essence == Block("python", theirs, "b").essence
    assert Block("bash", "a # b\n", "a").essence == Block("bash", "a\n", "b").essence
    assert Block("bash", "a b\n", "a").essence != Block("bash", "a\n", "b").essence
