"""How much of the on-chip buffer a lowered kernel holds at once, by the rule of ``lint.py``."""

from __future__ import annotations

from dataclasses import dataclass

from tests.ops.triton_ascend.generic_ir import Block, Op, parse_type

LOOPS = ("scf.for", "scf.while")
# Give another name to a value they take.
ALIASING = (
    *("bufferization.to_tensor", "memref.subview", "tensor.collapse_shape"),
    *("tensor.expand_shape", "tensor.extract_slice", "tensor.cast", "memref.cast"),
)
# Without storage of their own: their results are filled by others.
WITHOUT_STORAGE = ("tensor.empty", "bufferization.alloc_tensor", "memref.reinterpret_cast")
FILL = "linalg.fill"
# Take a scalar for a vector of one repeated value, by AscendNPU-IR's pass hfusion-inline-brc. It
# names element-wise arithmetic only: comparisons and selections keep the vector.
TAKING_SCALARS = tuple(
    f"arith.{name}"
    for name in (
        *("addf", "subf", "mulf", "divf", "maxnumf", "minnumf", "maximumf", "minimumf"),
        *("addi", "subi", "muli", "maxsi", "minsi", "andi", "ori", "xori"),
        *("shli", "shrsi", "shrui"),
    )
)


@dataclass(frozen=True)
class Peak:
    """The most that is held at once: ``num_bytes``, while ``op`` runs."""

    num_bytes: int
    op: str


class Holder:
    """Computes the peak of a function's body.

    Args:
        function: what to compute it of.
        with_fills: whether every vector of one repeated value counts, not only those that
            comparisons, selections and the like need.
    """

    def __init__(self, function: Op, *, with_fills: bool) -> None:
        self.free_fills = set() if with_fills else _folded_fills(function)
        self.bytes_of: dict[str, int] = {}
        self.source_of: dict[str, str] = {}

    def root(self, value: str) -> str:
        """Return the value whose storage ``value`` names."""
        while value in self.source_of:
            value = self.source_of[value]
        return value

    def define(self, op: Op, in_loop: bool) -> None:
        """Note the storage of an operation's results."""
        if op.name in ALIASING:
            self.source_of[op.results[0]] = op.operands[0]
        elif op.name == "memref.alloc":
            copies = 2 if in_loop else 1
            self.bytes_of[op.results[0]] = copies * _bytes(op.result_types[0])
        elif op.name not in WITHOUT_STORAGE and self.free_fills.isdisjoint(op.results):
            for value, kind in zip(op.results, op.result_types, strict=True):
                self.bytes_of[value] = _bytes(kind, only="tensor")

    def uses(self, op: Op) -> set[str]:
        """Return the storage that an operation, and all within it, uses."""
        return {self.root(value) for inner in op.walk() for value in inner.operands}

    def peak(self, block: Block, kept: set[str], given: set[str], in_loop: bool = False) -> Peak:
        """Return the peak within a block.

        Args:
            block: operations in their order.
            kept: values that are held throughout.
            given: values that are held until their last use in the block.
            in_loop: whether the block is within a loop.
        """
        for value, kind in block.arguments:
            self.bytes_of[value] = _bytes(kind, only="tensor")
        for op in block.ops:
            self.define(op, in_loop)
        used = [self.uses(op) for op in block.ops]
        last = {value: index for index, values in enumerate(used) for value in values}
        held = kept | {v for v in given | {name for name, _ in block.arguments} if v in last}
        best = Peak(0, "")
        for index, op in enumerate(block.ops):
            ending = {value for value in held - kept if last[value] == index}
            best = max(best, self._at(op, held, ending, in_loop), key=lambda p: p.num_bytes)
            held = held - ending | {v for v in op.results if v in self.bytes_of and v in last}
        return best

    def _at(self, op: Op, held: set[str], ending: set[str], in_loop: bool) -> Peak:
        """Return the peak while ``op`` runs: ``held`` is held before it, ``ending`` not after."""
        if op.name == "scf.if":
            peaks = [self.peak(block, held - ending, ending, in_loop) for block in op.blocks]
        elif op.name in LOOPS:
            # What a loop starts from becomes its own argument, unless it is read within, too.
            read_within = {v for block in op.blocks for o in block.ops for v in self.uses(o)}
            starts = ending - read_within
            peaks = [self.peak(block, held - starts, set(), True) for block in op.blocks]
        else:
            results = {value for value in op.results if value in self.bytes_of}
            peaks = [Peak(sum(self.bytes_of.get(v, 0) for v in held | results), str(op))]
        return max(peaks, key=lambda peak: peak.num_bytes, default=Peak(0, ""))


def _folded_fills(function: Op) -> set[str]:
    """Return the fills whose every use takes a scalar in their place."""
    fills = {op.results[0] for op in function.walk() if op.name == FILL and op.results}
    kept = {
        value
        for op in function.walk()
        if op.name not in TAKING_SCALARS
        for value in op.operands
        if value in fills
    }
    return fills - kept


def _bytes(kind: str, only: str | None = None) -> int:
    shaped = parse_type(kind)
    if shaped is None or not shaped.is_vector or only not in (None, shaped.kind):
        return 0
    return shaped.num_bytes


def peak_of(module: Op, *, with_fills: bool = False) -> Peak:
    """Return the peak of the first function of a module."""
    function = next(op for op in module.walk() if op.name == "func.func")
    return Holder(function, with_fills=with_fills).peak(function.blocks[0], set(), set())
