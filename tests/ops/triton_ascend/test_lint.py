"""The lowered kernels keep the linter's rules, and the linter finds what breaks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.triton_ascend.environment import requires_lowering
from tests.ops.triton_ascend.generic_ir import parse
from tests.ops.triton_ascend.lint import ON_CHIP_BYTES, Report, lint
from tests.ops.triton_ascend.lowering import Variant, lower
from tests.ops.triton_ascend.onchip import peak_of

CONTROLS = "tests.ops.triton_ascend.controls"
TYPES = {"x": "*fp32", "out": "*fp32", "index": "*i32", "size": "i32", "stride": "i32"}


@pytest.fixture(scope="module")
def reports(launched: dict[Variant, Path]) -> dict[Variant, Report]:
    return {variant: lint(folder) for variant, folder in launched.items()}


@requires_lowering
def test_launched_kernels_keep_all_rules(reports: dict[Variant, Report]) -> None:
    for variant, report in sorted(reports.items(), key=lambda item: str(item[0])):
        held, with_fills = report.on_chip_bytes / 1024, report.bytes_with_fills / 1024
        print(f"{held:6.1f} KiB ({with_fills:6.1f} with fills)  {variant}")
    broken = {str(v): [*map(str, r.findings)] for v, r in reports.items() if r.findings}
    assert not broken


@requires_lowering
def test_comparing_int32_by_order_in_loops_is_rare(reports: dict[Variant, Report]) -> None:
    for variant, report in reports.items():
        # One, in the block rule, over a request's positions.
        assert report.slow_compares <= dict(variant.constants).get("BLOCK_RULE", False), variant


def lint_control(folder: Path, name: str, *arguments: str, **constants: int) -> Report:
    types = {**TYPES, "x": "*i32"} if name in ("int64_vector", "slow_compare") else TYPES
    types = {**types, "out": "*i64"} if name == "int64_vector" else types
    signature = tuple((argument, types.get(argument, "i32")) for argument in arguments)
    variant = Variant(CONTROLS, name, signature, tuple(constants.items()))
    return lint(lower([variant], folder)[variant])


@requires_lowering
def test_a_sound_kernel_has_no_findings(folder: Path) -> None:
    report = lint_control(folder, "sound", "x", "out", "size", "stride", BLOCK=1024)
    assert report.findings == ()
    # The sum that the loop carries, a block and the next one, and their sum.
    assert report.on_chip_bytes == 4 * 4096
    assert report.slow_compares == 0


@requires_lowering
@pytest.mark.parametrize(
    ("rule", "name", "arguments", "constants"),
    [
        ("discrete", "discrete", ("x", "index", "out"), {"BLOCK": 64}),
        ("dropped-mask", "dropped_load_mask", ("x", "out", "size"), {"SIDE": 16}),
        ("dropped-mask", "dropped_store_mask", ("x", "out"), {"BLOCK": 64}),
        ("unguarded", "unguarded", ("x", "out", "size"), {}),
        ("float64", "float64", ("x", "out"), {"BLOCK": 64}),
        ("int64-vector", "int64_vector", ("x", "out", "size"), {"BLOCK": 64}),
        ("on-chip", "sound", ("x", "out", "size", "stride"), {"BLOCK": 16384}),
    ],
)
def test_a_kernel_that_breaks_a_rule_is_found(
    folder: Path, rule: str, name: str, arguments: tuple[str, ...], constants: dict[str, int]
) -> None:
    report = lint_control(folder, name, *arguments, **constants)
    assert {finding.rule for finding in report.findings} == {rule}


@requires_lowering
def test_findings_name_the_line_of_the_kernel(folder: Path) -> None:
    report = lint_control(folder, "unguarded", "x", "out", "size")
    lines = Path(__file__).with_name("controls.py").read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "index < size, other=0.0" in line)
    assert [finding.place for finding in report.findings] == [f"controls.py:{number}"]


@requires_lowering
def test_slow_comparisons_are_counted(folder: Path) -> None:
    report = lint_control(folder, "slow_compare", "x", "out", "size", "limit", BLOCK=64)
    assert report.slow_compares == 1
    assert report.findings == ()


def function(*lines: str) -> str:
    """Return a module in generic form whose function has these operations."""
    body = "\n".join(lines)
    return (
        '"builtin.module"() ({\n'
        '"func.func"() <{function_type = (memref<?xf32>) -> (), sym_name = "f"}> ({\n'
        "^bb0(%arg0: memref<?xf32>, %arg1: i32):\n"
        f'{body}\n"func.return"() : () -> ()\n'
        "}) : () -> ()\n}) : () -> ()\n"
    )


ALLOC = '{0} = "memref.alloc"() <{{operandSegmentSizes = array<i32: 0, 0>}}> : () -> {1}'
TO_TENSOR = '{1} = "bufferization.to_tensor"({0}) <{{restrict}}> : (memref<{2}>) -> tensor<{2}>'
ADD = '{2} = "arith.addf"({0}, {1}) : (tensor<{3}>, tensor<{3}>) -> tensor<{3}>'


def test_values_are_held_until_their_last_use() -> None:
    text = function(
        ALLOC.format("%0", "memref<256xf32>"),
        TO_TENSOR.format("%0", "%1", "256xf32"),
        ADD.format("%1", "%1", "%2", "256xf32"),
        ADD.format("%2", "%2", "%3", "256xf32"),
        ADD.format("%3", "%3", "%4", "256xf32"),
    )
    assert peak_of(parse(text)).num_bytes == 2 * 1024


def test_buffers_count_twice_in_loops_and_what_loops_carry_throughout() -> None:
    text = function(
        '%0 = "test.make"() : () -> tensor<256xf32>',
        '%1 = "scf.for"(%arg1, %arg1, %arg1, %0) ({',
        "^bb0(%arg2: i32, %arg3: tensor<256xf32>):",
        ALLOC.format("%2", "memref<256xf32>"),
        TO_TENSOR.format("%2", "%3", "256xf32"),
        ADD.format("%arg3", "%3", "%4", "256xf32"),
        '"scf.yield"(%4) : (tensor<256xf32>) -> ()',
        "}) : (i32, i32, i32, tensor<256xf32>) -> tensor<256xf32>",
        '"test.use"(%1) : (tensor<256xf32>) -> ()',
    )
    # Carried, twice the buffer, the sum.
    assert peak_of(parse(text)).num_bytes == 4 * 1024


def test_what_a_loop_reads_but_does_not_carry_is_held_throughout() -> None:
    text = function(
        '%0 = "test.make"() : () -> tensor<256xf32>',
        '"scf.for"(%arg1, %arg1, %arg1) ({',
        "^bb0(%arg2: i32):",
        ADD.format("%0", "%0", "%1", "256xf32"),
        ADD.format("%1", "%1", "%2", "256xf32"),
        '"scf.yield"() : () -> ()',
        "}) : (i32, i32, i32) -> ()",
    )
    assert peak_of(parse(text)).num_bytes == 3 * 1024


def test_branches_hold_the_larger_of_both() -> None:
    text = function(
        '%0 = "scf.if"(%arg1) ({',
        '%1 = "test.make"() : () -> tensor<512xf32>',
        '"test.use"(%1) : (tensor<512xf32>) -> ()',
        '%2 = "test.make"() : () -> tensor<256xf32>',
        '"scf.yield"(%2) : (tensor<256xf32>) -> ()',
        "}, {",
        '%3 = "test.make"() : () -> tensor<256xf32>',
        '"scf.yield"(%3) : (tensor<256xf32>) -> ()',
        "}) : (i1) -> tensor<256xf32>",
        '"test.use"(%0) : (tensor<256xf32>) -> ()',
    )
    assert peak_of(parse(text)).num_bytes == 2 * 1024


FILL = (
    '%0 = "tensor.empty"() : () -> tensor<64x1xf32>',
    '%1 = "linalg.fill"(%arg1, %0) ({',
    "^bb0(%arg2: f32, %arg3: f32):",
    '"linalg.yield"(%arg2) : (f32) -> ()',
    "}) : (f32, tensor<64x1xf32>) -> tensor<64x1xf32>",
)


@pytest.mark.parametrize(
    ("user", "held"), [("arith.addf", 0), ("arith.cmpf", 1), ("arith.select", 1), ("test.use", 1)]
)
def test_repeated_values_are_held_where_no_scalar_takes_their_place(user: str, held: int) -> None:
    module = parse(function(*FILL, f'"{user}"(%1) : (tensor<64x1xf32>) -> ()'))
    # Rows are padded to 32 bytes.
    assert peak_of(module).num_bytes == held * 64 * 32
    assert peak_of(module, with_fills=True).num_bytes == 64 * 32


def test_one_use_that_needs_the_vector_is_enough_to_hold_it() -> None:
    uses = [f'"{user}"(%1) : (tensor<64x1xf32>) -> ()' for user in ("arith.addf", "arith.select")]
    assert peak_of(parse(function(*FILL, *uses))).num_bytes == 64 * 32


def test_what_is_no_generic_form_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1 is not an operation: func"):
        parse("func.func @f() {")


def test_the_limit_is_that_of_a_vector_core() -> None:
    assert ON_CHIP_BYTES == 196608
