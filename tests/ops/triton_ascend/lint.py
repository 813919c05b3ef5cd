"""Rules that a lowered kernel must keep.

============== =================================================================================
discrete       Vectors are loaded and stored whole. Where addresses have no structure that
               triton-ascend can see, the access becomes a loop over single elements.
dropped-mask   No mask is lost. One that is not a box of consecutive elements is dropped: a load
               then reads all of its block, past the end of the tensor, and a store reads,
               merges and writes all of its block, which undoes what others write there.
unguarded      No single element is loaded under a mask: the lowered load is unconditional and
               only its result is selected. A branch (``if``) keeps the address from being read.
float64        No float64 at all; a Triton 3.2 kernel gets it by constants below 2**-126.
int64-vector   No vectors of int64 within loops: the vector unit does not compute with them.
on-chip        What is held at once fits into 192 KiB, see below.
============== =================================================================================

On-chip storage is counted as follows (``onchip.py``). Every buffer that memory is copied into,
and every vector that an operation makes, is held from there to its last use; within loops, a
buffer counts twice, for Ascend's compiler keeps a second one to load ahead (``multibuffer``, on
by default); what a loop carries is held throughout the loop. Rows are padded to 32 bytes,
booleans take a byte, views take nothing, and no operation writes into its operand's place, though
many could. A vector of one repeated value takes nothing if only element-wise arithmetic uses it,
where AscendNPU-IR's pass hfusion-inline-brc puts a scalar in its place; comparisons and selections
are not among what that pass names, and keep the vector. ``Report.bytes_with_fills`` tells what
would be held if none were replaced. The count knows neither the scratch space of single
instructions nor what Ascend's compiler adds or saves: it finds kernels that ask for too much, and
proves of none that it fits.

Comparing vectors of int32 by anything but equality is counted too (``slow_compares``), but is no
fault: the vector unit compares floats only, and Ascend's compiler may fall back to scalars there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.ops.triton_ascend.generic_ir import Op, parse, parse_type
from tests.ops.triton_ascend.locations import Locations
from tests.ops.triton_ascend.lowering import result
from tests.ops.triton_ascend.onchip import LOOPS, peak_of

ON_CHIP_BYTES = 192 * 1024
DISCRETE_MARKS = ("DiscreteMemAccess", "ExtractedLoadOrStore")
EQUALITY = ("predicate = 0 ", "predicate = 1 ")


@dataclass(frozen=True)
class Finding:
    """One broken rule: its name, where in the kernels' source (if known), and what is wrong."""

    rule: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.place}: {self.text}"


@dataclass(frozen=True)
class Report:
    """What the linter found in one kernel.

    Attributes:
        findings: the broken rules.
        on_chip_bytes: what is held at once at most, and the operation at that point.
        bytes_with_fills: the same if every vector of one repeated value were held.
        slow_compares: comparisons of int32 vectors within loops that are not for equality.
    """

    findings: tuple[Finding, ...]
    on_chip_bytes: int
    fullest_at: str
    bytes_with_fills: int
    slow_compares: int


def lint(folder: Path) -> Report:
    """Check a kernel that :func:`~tests.ops.triton_ascend.lowering.lower` has written.

    Raises:
        LoweringError: it could not be lowered.
    """
    texts = {form: result(folder, f"{form}.mlir") for form in ("ttir", "masks", "linalg.generic")}
    ttir, masks, lowered = (parse(text) for text in texts.values())
    places = Locations(texts["ttir"])
    peak = peak_of(lowered)
    findings = [
        *_unguarded(ttir, places),
        *_dropped_masks(ttir, masks, places, Locations(texts["masks"])),
        *_float64(ttir, places),
        *_discrete(lowered),
        *_int64_vectors(lowered),
    ]
    if peak.num_bytes > ON_CHIP_BYTES:
        text = f"{peak.num_bytes} bytes of {ON_CHIP_BYTES} are held at {peak.op}; use smaller tiles"
        findings.append(Finding("on-chip", "?", text))
    compares = sum(_is_slow_compare(op) for op in in_loops(lowered))
    with_fills = peak_of(lowered, with_fills=True).num_bytes
    return Report(tuple(findings), peak.num_bytes, peak.op, with_fills, compares)


def in_loops(op: Op, within: bool = False) -> Iterator[Op]:
    """Yield the operations within loops, those that make up other operations excepted."""
    for block in op.blocks:
        for inner in block.ops:
            if within:
                yield inner
            if not inner.name.startswith("linalg."):
                yield from in_loops(inner, within or inner.name in LOOPS)


def mask_of(op: Op) -> str | None:
    """Return the mask of a load or store, or None if it has none."""
    if op.name == "tt.load" and "operandSegmentSizes = array<i32: 1, 1," in op.attributes:
        return op.operands[1]
    if op.name == "tt.store" and len(op.operands) == 3:
        return op.operands[2]
    return None


def _unguarded(ttir: Op, places: Locations) -> Iterator[Finding]:
    for op in ttir.walk():
        if mask_of(op) and not op.operand_types[0].startswith("tensor"):
            text = "a single element under a mask is accessed regardless of it; use `if`"
            yield Finding("unguarded", places.place(op.location), text)


def _dropped_masks(
    ttir: Op, masks: Op, places: Locations, places_after: Locations
) -> Iterator[Finding]:
    def masked(module: Op, names: Locations) -> Counter[tuple[str, str]]:
        found = [op for op in module.walk() if mask_of(op)]
        return Counter((op.name, names.place(op.location)) for op in found)

    for (name, place), count in (masked(ttir, places) - masked(masks, places_after)).items():
        kind = {"tt.load": "load", "tt.store": "store"}[name]
        text = f"{count} {kind}{'s' * (count > 1)} with a mask that is no box of elements"
        yield Finding("dropped-mask", place, text)


def _float64(ttir: Op, places: Locations) -> Iterator[Finding]:
    for op in ttir.walk():
        if any("f64" in kind for kind in (*op.result_types, *op.operand_types)):
            yield Finding("float64", places.place(op.location), str(op))


def _discrete(lowered: Op) -> Iterator[Finding]:
    for op in lowered.walk():
        for mark in DISCRETE_MARKS:
            if mark in op.attributes:
                yield Finding("discrete", "?", f"{op} is done element by element ({mark})")


def _int64_vectors(lowered: Op) -> Iterator[Finding]:
    for op in in_loops(lowered):
        shapes = [parse_type(kind) for kind in op.result_types]
        if any(s and s.kind == "tensor" and s.element == "i64" and s.is_vector for s in shapes):
            yield Finding("int64-vector", "?", str(op))


def _is_slow_compare(op: Op) -> bool:
    if op.name != "arith.cmpi" or any(mark in op.attributes for mark in EQUALITY):
        return False
    shape = parse_type(op.operand_types[0])
    return shape is not None and shape.is_vector
