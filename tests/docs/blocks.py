"""Code blocks of Markdown documents and of the examples' docstrings, and the commands in them."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
# Folders of what is built; those of tools and environments start with a dot.
NOT_OURS = {"build", "dist", "bench-results"}
SHELL = {"bash", "sh", "shell", "console"}
# The language of blocks that do not say theirs.
UNNAMED = "bash"


@dataclass(frozen=True)
class Block:
    """A code block: its language, its text, and its file and line."""

    language: str
    text: str
    where: str

    @property
    def essence(self) -> tuple[str, ...]:
        """What is left without comments and docstrings, which are in the document's language."""
        if self.language in SHELL:
            return (self.language, *(command.text for command in commands_of(self)))
        text = without_docstrings(self.text) if self.language == "python" else self.text
        return (self.language, text)


@dataclass(frozen=True)
class Command:
    """A shell command; equal if it has the same words, whatever the comment behind it says."""

    text: str
    where: str = field(compare=False)


def documents() -> list[Path]:
    """Return all Markdown files."""
    folders = [
        path
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in NOT_OURS
    ]
    return sorted([*ROOT.glob("*.md"), *(file for path in folders for file in path.rglob("*.md"))])


def examples() -> list[Path]:
    """Return the examples; their docstrings say how to run them."""
    return sorted((ROOT / "examples").rglob("*.py"))


def blocks_in(path: Path) -> list[Block]:
    """Return the blocks of one file, in order."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    return list(blocks_of(text, str(path.relative_to(ROOT))))


def blocks_of(text: str, name: str) -> Iterator[Block]:
    """Yield the blocks of a Markdown text, fenced or indented."""
    for token in MarkdownIt().parse(text):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            language = token.info.split()[0] if token.info.strip() else UNNAMED
            yield Block(language, token.content, f"{name}:{token.map[0] + 1}")


@functools.cache
def all_blocks() -> tuple[Block, ...]:
    """Return the blocks of all documents and examples; of equal ones the first."""
    files = [*documents(), *examples()]
    found: dict[tuple[str, ...], Block] = {}
    for block in (block for path in files for block in blocks_in(path)):
        found.setdefault(block.essence, block)
    return tuple(found.values())


def without_docstrings(source: str) -> str:
    """Return Python in one form, comments and strings that are statements left out."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [line for line in body if not is_text(line)]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def is_text(node: ast.AST) -> bool:
    """Tell whether a statement is a string and nothing else."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def commands_of(block: Block) -> list[Command]:
    """Split a shell block; a command ends with its line, unless a quote or a backslash goes on."""
    commands, pending = [], ""
    for line in block.text.replace("\\\n", " ").splitlines():
        pending += line.removeprefix("$ ") if block.language == "console" else line
        if is_open(pending):
            pending += "\n"
            continue
        if words := words_of(pending):
            commands.append(Command(" ".join(words), block.where))
        pending = ""
    assert not pending, f"{block.where}: a quote is not closed"
    return commands


def is_open(text: str) -> bool:
    """Tell whether a quote in ``text`` is still open."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def words_of(text: str) -> list[str]:
    """Return the words of a command as they are written, quotes included and comments left out."""
    reader = shlex.shlex(text, posix=False)
    reader.whitespace_split, reader.commenters = True, ""
    words = list(reader)
    comment = next((place for place, word in enumerate(words) if word.startswith("#")), None)
    return words[:comment]


def all_commands() -> list[Command]:
    """Return the commands of all shell blocks, each once."""
    shell = [block for block in all_blocks() if block.language in SHELL]
    return list(dict.fromkeys(command for block in shell for command in commands_of(block)))


def inline_code() -> list[Command]:
    """Return what stands in backticks in the documents' text, each once."""
    found = [
        Command(re.sub(r"\s+", " ", child.content), str(path.relative_to(ROOT)))
        for path in documents()
        for token in MarkdownIt().enable("table").parse(path.read_text())
        for child in token.children or ()
        if child.type == "code_inline"
    ]
    return list(dict.fromkeys(found))
