"""Reads MLIR in its generic form (``--mlir-print-op-generic``), as far as the linter needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

ELEMENT_BYTES = {
    **{"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8},
    **{"f16": 2, "bf16": 2, "f32": 4, "f64": 8},
}
_SHAPED = re.compile(r"^(tensor|memref)<((?:[0-9?]+x)*)([a-z0-9!.<>]+?)(?:,.*)?>$")
_OP = re.compile(r'^(?:(%[\w#, :%]+?) = )?"([\w.]+)"\((.*?)\)(.*)$')
_VALUE = re.compile(r"%\w+(?:#\d+)?")
_LOCATION = re.compile(r" loc\((.*)\)$")


@dataclass(frozen=True)
class Shaped:
    """A tensor or memref type; ``shape`` has -1 for sizes that are not static."""

    kind: str
    shape: tuple[int, ...]
    element: str

    @property
    def is_vector(self) -> bool:
        """Whether it has more than one element."""
        return any(size != 1 for size in self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes it takes on chip, where rows are padded to 32 bytes."""
        if not self.shape:
            return 32
        *outer, last = self.shape
        rows = 1
        for size in outer:
            rows *= max(size, 1)
        return rows * -(-max(last, 1) * ELEMENT_BYTES[self.element] // 32) * 32


def parse_type(text: str) -> Shaped | None:
    """Return a shaped type, or None for any other."""
    match = _SHAPED.match(text.strip())
    if match is None or match[3] not in ELEMENT_BYTES:
        return None
    sizes = tuple(-1 if size == "?" else int(size) for size in match[2].split("x")[:-1])
    return Shaped(match[1], sizes, match[3])


@dataclass
class Block:
    """A block: its arguments with their types, and its operations."""

    arguments: list[tuple[str, str]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)


@dataclass
class Op:
    """An operation.

    Attributes:
        name: dialect and name.
        results, operands: names of values, those of several results as ``%1#0``.
        attributes: the text of its attributes and properties.
        result_types, operand_types: types as text.
        blocks: the blocks of all its regions.
        location: the text of its location, unresolved.
    """

    name: str
    results: list[str]
    operands: list[str]
    attributes: str = ""
    operand_types: list[str] = field(default_factory=list)
    result_types: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    location: str = ""

    def walk(self) -> Iterator[Op]:
        """Yield this operation and all within it."""
        yield self
        for block in self.blocks:
            for op in block.ops:
                yield from op.walk()

    def __str__(self) -> str:
        types = f"({', '.join(self.operand_types)}) -> ({', '.join(self.result_types)})"
        return f"{self.name} {types}"


def split_types(text: str) -> list[str]:
    """Split a list of types at the commas that are not inside of one."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "<([") - (char in ">)]" and text[index - 1 : index] != "-")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def parse(text: str) -> Op:
    """Return the module printed in ``text``.

    Raises:
        ValueError: a line is not of the generic form.
    """
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    top = Block()
    _parse_block(lines, 0, top)
    if len(top.ops) != 1:
        raise ValueError(f"{len(top.ops)} modules, expected 1")
    return top.ops[0]


def _parse_block(lines: list[str], index: int, block: Block) -> int:
    """Fill ``block`` from a line on; return the first line that is not part of it."""
    while index < len(lines):
        line = lines[index].strip()
        if line.startswith(("}", "^bb")):
            return index
        index = _parse_op(lines, index, block)
    return index


def _parse_op(lines: list[str], index: int, block: Block) -> int:
    line = lines[index].strip()
    match = _OP.match(line)
    if match is None:
        raise ValueError(f"line {index + 1} is not an operation: {line[:200]}")
    op = Op(match[2], _results(match[1]), _VALUE.findall(match[3]))
    block.ops.append(op)
    tail = match[4]
    if not tail.rstrip().endswith("({"):
        _finish(op, tail)
        return index + 1
    op.attributes = tail.rstrip()[:-2]
    index += 1
    while True:
        index = _parse_region(lines, index, op)
        closing = lines[index].strip()
        index += 1
        if not closing.startswith("}, {"):
            _finish(op, closing.removeprefix("})"))
            return index


def _parse_region(lines: list[str], index: int, op: Op) -> int:
    while not lines[index].strip().startswith("}"):
        block = Block()
        line = lines[index].strip()
        if line.startswith("^bb"):
            block.arguments = re.findall(r"(%\w+): ([^%]+?)(?= loc\(|, %|\):)", line)
            index += 1
        op.blocks.append(block)
        index = _parse_block(lines, index, block)
    return index


def _results(text: str | None) -> list[str]:
    if text is None:
        return []
    name, _, count = text.partition(":")
    return [f"{name}#{i}" for i in range(int(count))] if count else [name]


def _finish(op: Op, tail: str) -> None:
    """Read what follows an operation's regions: attributes, types, location."""
    if match := _LOCATION.search(tail):
        op.location, tail = match[1], tail[: match.start()]
    attributes, _, types = tail.rpartition(" : (")
    op.attributes += attributes
    operands, _, results = ("(" + types).partition(" -> ")
    op.operand_types = split_types(operands.strip()[1:-1])
    op.result_types = split_types(results.strip().removeprefix("(").removesuffix(")"))
