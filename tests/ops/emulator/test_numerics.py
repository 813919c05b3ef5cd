"""What the emulator's instructions compute, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ops.emulator.report import EmulatorError
from tests.ops.emulator.build import (
    NAN_IGNORE,
    NAN_PROPAGATE,
    Host,
    build,
    requires_compiler,
)

pytestmark = requires_compiler

PROBE = Path(__file__).parent / "probes" / "numerics.cpp"
TYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat16_t": torch.bfloat16,
    "int16_t": torch.int16,
    "uint16_t": torch.uint16,
    "int32_t": torch.int32,
    "uint32_t": torch.uint32,
    "int64_t": torch.int64,
    "uint8_t": torch.uint8,
}
ARITHMETIC = ("int16_t", "half", "int32_t", "float")
FLOATS = ("half", "float")
NAN, INF = math.nan, math.inf
N = 256
# CMPMODE and RoundMode, by value.
COMPARISONS = (torch.lt, torch.gt, torch.eq, torch.le, torch.ge, torch.ne)
NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD = range(7)


def run(
    name: str,
    a: torch.Tensor,  # [n], what x holds
    b: torch.Tensor | None = None,  # [n], what y holds; None: x again
    *,
    out: torch.Tensor | None = None,  # what dst holds before; None: zeros like a
    count: int | None = None,
    scalar: float = 0.0,
    nan_mode: int = NAN_PROPAGATE,
) -> torch.Tensor:
    b = a if b is None else b
    result = torch.zeros_like(a) if out is None else out.clone()
    sizes = (a.numel() * a.element_size(), result.numel() * result.element_size())
    count = a.numel() if count is None else count
    host = Host(build(PROBE, optimise=False), nan_mode=nan_mode)
    host(name, 1, a, b, result, *sizes, count, float(scalar))
    return result


def values(dtype: torch.dtype, seed: int = 0, n: int = N) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(n, generator=generator).mul(4).to(dtype)
    top = 2**15 - 1 if dtype == torch.int16 else 2**31 - 1
    return torch.randint(-top, top, (n,), generator=generator).to(dtype)


def packed(bits: torch.Tensor) -> torch.Tensor:
    weights = 2 ** torch.arange(8, dtype=torch.int32)
    return (bits.view(-1, 8).int() * weights).sum(1).to(torch.uint8)


def assert_same(got: torch.Tensor, expected: torch.Tensor, rtol: float = 0.0) -> None:
    torch.testing.assert_close(got, expected, rtol=rtol, atol=rtol, equal_nan=True)


class TestArithmetic:
    @pytest.mark.parametrize("name", ARITHMETIC)
    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            ("Add", torch.add),
            ("Sub", torch.sub),
            ("Mul", torch.mul),
            ("Max", torch.maximum),
            ("Min", torch.minimum),
        ],
    )
    def test_of_two_tensors(self, op: str, expected: Callable, name: str):
        a, b = values(TYPES[name]), values(TYPES[name], 1)
        assert_same(run(f"{op}_{name}", a, b), expected(a, b))

    @pytest.mark.parametrize("name", ARITHMETIC)
    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            ("Adds", torch.add),
            ("Muls", torch.mul),
            ("Maxs", torch.maximum),
            ("Mins", torch.minimum),
        ],
    )
    def test_with_a_scalar(self, op: str, expected: Callable, name: str):
        a = values(TYPES[name])
        assert_same(run(f"{op}_{name}", a, scalar=3), expected(a, torch.tensor(3, dtype=a.dtype)))

    @pytest.mark.parametrize("name", FLOATS)
    @pytest.mark.parametrize(
        ("op", "expected", "rtol"),
        [
            ("Abs", torch.abs, 0),
            ("Exp", torch.exp, 2e-6),
            ("Ln", torch.log, 2e-6),
            ("Sqrt", torch.sqrt, 2e-7),
            ("Relu", torch.relu, 0),
            ("Reciprocal", torch.reciprocal, 3e-4),
            ("Rsqrt", torch.rsqrt, 3e-4),
        ],
    )
    def test_of_one_tensor(self, op: str, expected: Callable, rtol: float, name: str):
        a = values(TYPES[name])
        rtol = max(rtol, 1e-3) if name == "half" and rtol else rtol
        assert_same(run(f"{op}_{name}", a), expected(a), rtol)

    def test_reciprocals_are_no_better_than_documented(self):
        a = values(torch.float32)
        assert (run("Reciprocal_float", a) * a - 1).abs().max() > 1e-5

    @pytest.mark.parametrize("name", FLOATS)
    def test_division_and_fused_forms(self, name: str):
        a, b, c = (values(TYPES[name], seed) for seed in range(3))
        assert_same(run(f"Div_{name}", a, b), a / b)
        wide = (a.float() * 2.5 + c.float()).to(a.dtype)
        assert_same(run(f"Axpy_{name}", a, out=c, scalar=2.5), wide, 1e-6)
        wide = (a.float() * b.float() + c.float()).to(a.dtype)
        assert_same(run(f"MulAddDst_{name}", a, b, out=c), wide, 1e-6)

    def test_logic_and_shifts(self):
        a, b = values(torch.int16), values(torch.int16, 1)
        assert_same(run("And_int16_t", a, b), a & b)
        assert_same(run("Not_int16_t", a), ~a)
        assert_same(run("Or_uint16_t", a, b), a | b)
        assert_same(run("ShiftRight_int16_t", a, scalar=3), a >> 3)
        a = values(torch.int32)
        assert_same(run("ShiftLeft_int32_t", a, scalar=5), a << 5)
        assert_same(run("ShiftRight_int32_t", a, scalar=5), a >> 5)
        logical = ((a.long() & 0xFFFFFFFF) >> 5).to(torch.int32)
        assert_same(run("ShiftRight_uint32_t", a, scalar=5), logical)
        assert_same(run("ShiftRight_uint32_t", a, scalar=32), torch.zeros_like(a))

    @pytest.mark.parametrize("name", ["int16_t", "half", "int32_t", "float"])
    def test_filling(self, name: str):
        a = values(TYPES[name])
        assert_same(run(f"Duplicate_{name}", a, scalar=3), torch.full_like(a, 3))

    def test_indices(self):
        for name in ("half", "int32_t", "float"):
            a = values(TYPES[name])
            assert_same(run(f"CreateVecIndex_{name}", a, scalar=7), torch.arange(7, 7 + N).to(a))
        a = values(torch.float32)
        assert_same(run("ArithProgression_float", a, scalar=0.5), 1.5 + 0.5 * torch.arange(N))

    def test_a_prefix_leaves_the_rest(self):
        a = values(torch.float32)
        got = run("Add_float", a, out=torch.full_like(a, 9), count=13)
        assert_same(got[:13], a[:13] * 2)
        assert got[13:].eq(9).all()


class TestNan:
    """The reference is silent on NaN, so a launch chooses and kernels are run both ways."""

    A = torch.tensor([NAN, 1.0, NAN, -INF] * 64)
    B = torch.tensor([1.0, NAN, NAN, 2.0] * 64)

    @pytest.mark.parametrize(
        ("op", "mode", "expected"),
        [
            ("Max", NAN_PROPAGATE, torch.maximum),
            ("Max", NAN_IGNORE, torch.fmax),
            ("Min", NAN_PROPAGATE, torch.minimum),
            ("Min", NAN_IGNORE, torch.fmin),
        ],
    )
    def test_max_and_min(self, op: str, mode: int, expected: Callable):
        assert_same(run(f"{op}_float", self.A, self.B, nan_mode=mode), expected(self.A, self.B))

    @pytest.mark.parametrize("mode", [NAN_PROPAGATE, NAN_IGNORE])
    def test_reductions(self, mode: int):
        a = torch.tensor([1.0, NAN, 3.0] + [0.0] * 61)
        got = run("ReduceMax_float", a, scalar=1, nan_mode=mode)
        value, index = got[0], got[1:2].view(torch.int32).item()
        if mode == NAN_PROPAGATE:
            assert value.isnan()
            assert index == 1
        else:
            assert (value, index) == (3, 2)

    def test_comparisons_with_nan_are_false_except_ne(self):
        for mode, expected in enumerate(COMPARISONS):
            out = torch.zeros(N // 8, dtype=torch.uint8)
            got = run("Compare_float", self.A, self.B, out=out, scalar=mode)
            assert_same(got, packed(expected(self.A, self.B)))

    def test_relu_keeps_nan(self):
        assert run("Relu_float", self.A)[0].isnan()


class TestCompareAndSelect:
    @pytest.mark.parametrize("name", FLOATS)
    @pytest.mark.parametrize("mode", range(6))
    def test_compare(self, name: str, mode: int):
        a, b = values(TYPES[name]), values(TYPES[name], 1)
        b[::3] = a[::3]
        out = torch.zeros(N // 8, dtype=torch.uint8)
        got = run(f"Compare_{name}", a, b, out=out, scalar=mode)
        assert_same(got, packed(COMPARISONS[mode](a, b)))
        a = a.round()
        got = run(f"CompareScalar_{name}", a, out=out, scalar=20 + mode)
        assert_same(got, packed(COMPARISONS[mode](a, torch.tensor(2.0, dtype=a.dtype))))

    def test_integers_compare_for_equality_only(self):
        a, b = values(torch.int32), values(torch.int32, 1)
        b[::3] = a[::3]
        out = torch.zeros(N // 8, dtype=torch.uint8)
        assert_same(run("Compare_int32_t", a, b, out=out, scalar=2), packed(a == b))
        with pytest.raises(EmulatorError, match="EQ only") as broken:
            run("Compare_int32_t", a, b, out=out, scalar=0)
        assert broken.value.kind == "unsupported"

    @pytest.mark.parametrize("name", FLOATS)
    def test_select(self, name: str):
        a, b = values(TYPES[name]), values(TYPES[name], 1)
        seven = torch.tensor(7.0, dtype=a.dtype)
        assert_same(run(f"Select_{name}", a, b, scalar=1), torch.where(b > 0, a, seven))
        assert_same(run(f"Select_{name}", a, b, scalar=2), torch.where(b > 0, a, b))
        per_repeat = 256 // a.element_size()
        mask = (b[:per_repeat] > 0).repeat(N // per_repeat)
        assert_same(run(f"Select_{name}", a, b, scalar=0), torch.where(mask, a, b))


CASTS: list[tuple[str, str, int, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("float", "half", NONE, torch.Tensor.float),
    ("float", "bfloat16_t", NONE, torch.Tensor.float),
    ("half", "float", RINT, torch.Tensor.half),
    ("half", "float", NONE, torch.Tensor.half),
    ("bfloat16_t", "float", RINT, torch.Tensor.bfloat16),
    ("int32_t", "float", RINT, lambda x: x.round().int()),
    ("int32_t", "float", FLOOR, lambda x: x.floor().int()),
    ("int32_t", "float", CEIL, lambda x: x.ceil().int()),
    ("int32_t", "float", TRUNC, lambda x: x.trunc().int()),
    ("int32_t", "float", ROUND, lambda x: (x.abs() + 0.5).floor().mul(x.sign()).int()),
    ("int32_t", "half", RINT, lambda x: x.float().round().int()),
    ("int32_t", "bfloat16_t", TRUNC, lambda x: x.float().trunc().int()),
    ("int16_t", "float", RINT, lambda x: x.round().short()),
    ("int64_t", "float", FLOOR, lambda x: x.floor().long()),
    ("float", "float", CEIL, torch.ceil),
    ("float", "int32_t", NONE, torch.Tensor.float),
    ("float", "int16_t", NONE, torch.Tensor.float),
    ("half", "int16_t", RINT, torch.Tensor.half),
    ("int64_t", "int32_t", NONE, torch.Tensor.long),
]


class TestCast:
    @pytest.mark.parametrize(("to", "source", "mode", "expected"), CASTS)
    def test_against_torch(self, to: str, source: str, mode: int, expected: Callable):
        a = values(TYPES[source])
        out = torch.zeros(N, dtype=TYPES[to])
        assert_same(run(f"Cast_{to}_{source}", a, out=out, scalar=mode), expected(a))

    def test_saturates(self):
        a = torch.tensor([3e9, -3e9, NAN, 7.5, INF, -INF] * 8)
        out = torch.zeros(48, dtype=torch.int32)
        top, low = 2**31 - 1, -(2**31)
        got = run("Cast_int32_t_float", a, out=out, scalar=RINT)
        assert got[:6].tolist() == [top, low, 0, 8, top, low]
        wide = torch.tensor([70000, -70000, 5, -5] * 8, dtype=torch.int32)
        got = run("Cast_int16_t_int32_t", wide, out=torch.zeros(32, dtype=torch.int16))
        assert got[:4].tolist() == [32767, -32768, 5, -5]
        far = torch.tensor([2**40, -(2**40), 5, -5] * 8)
        got = run("Cast_int32_t_int64_t", far, out=torch.zeros(32, dtype=torch.int32))
        assert got[:4].tolist() == [top, low, 5, -5]

    def test_every_half_and_bfloat16_survives(self):
        for name in ("half", "bfloat16_t"):
            bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
            for part in bits.view(TYPES[name]).split(8192):
                wide = run(f"Cast_float_{name}", part, out=torch.zeros(len(part)))
                assert_same(wide, part.float())
                back = run(f"Cast_{name}_float", wide, out=torch.zeros_like(part), scalar=RINT)
                assert_same(back, part)

    def test_half_rounds_and_overflows_as_torch_does(self):
        a = torch.tensor([65504.0, 65519.9, 65520.0, 1e6, -1e6, 6e-8, 2e-8, 3e-8, NAN, INF])
        edges = torch.cat([a, -a, torch.linspace(-6e-5, 6e-5, 236)])
        assert_same(run("Cast_half_float", edges, out=edges.half(), scalar=RINT), edges.half())

    def test_odd_rounding(self):
        a = torch.tensor([1 + 2**-11, 1 + 2**-10, -(1 + 2**-11), 1.0] * 8)
        got = run("Cast_half_float", a, out=a.half(), scalar=ODD)
        odd = 1 + 2**-10
        assert got[:4].tolist() == [odd, odd, -odd, 1.0]

    def test_a_missing_mode_is_reported(self):
        a = values(torch.float32)
        with pytest.raises(EmulatorError, match="rounding mode 0") as broken:
            run("Cast_bfloat16_t_float", a, out=a.bfloat16(), scalar=NONE)
        assert broken.value.kind == "unsupported"


def tree(x: torch.Tensor) -> torch.Tensor:
    """Sum neighbours, then neighbours of sums."""
    while x.numel() > 1:
        x = x[0::2] + x[1::2]
    return x[0]


class TestReduce:
    @pytest.mark.parametrize("name", FLOATS)
    @pytest.mark.parametrize("count", [1, 8, 63, 64, 65, 200, 256])
    def test_max_and_min_give_the_lowest_index(self, name: str, count: int):
        a = values(TYPES[name]).round()
        integer = torch.int32 if name == "float" else torch.int16
        for op, expected in (("ReduceMax", torch.max), ("ReduceMin", torch.min)):
            got = run(f"{op}_{name}", a, count=count, scalar=1)
            best = expected(a[:count])
            assert got[0] == best
            assert got[1:2].view(integer).item() == (a[:count] == best).nonzero()[0].item()
            assert run(f"{op}_{name}", a, count=count, scalar=0)[1] == 0

    @pytest.mark.parametrize("count", [64, 128, 256])
    def test_sum_adds_trees_of_repeats_in_turn(self, count: int):
        a = values(torch.float32)
        expected = torch.tensor(0.0)
        for repeat in a[:count].split(64):
            expected = expected + tree(repeat)
        assert run("ReduceSum_float", a, count=count)[0] == expected

    def test_sum_of_part_of_a_repeat(self):
        a = values(torch.float32)
        assert run("ReduceSum_float", a, count=77)[0].item() == pytest.approx(
            a[:77].double().sum().item(), rel=1e-6
        )
        ones = torch.ones(N, dtype=torch.float16)
        assert run("ReduceSum_half", ones)[0] == N

    @pytest.mark.parametrize("name", FLOATS)
    def test_repeats(self, name: str):
        dtype = TYPES[name]
        per = 256 // dtype.itemsize
        a = values(dtype, n=4 * per).round()
        rows = a.view(4, per)
        integer = torch.int32 if name == "float" else torch.int16
        got = run(f"WholeReduceMax_{name}", a, count=per)
        assert_same(got[:8:2], rows.amax(1))
        first = (rows == rows.amax(1, keepdim=True)).int().argmax(1)
        assert got[:8].view(integer)[1::2].tolist() == first.tolist()
        got = run(f"WholeReduceMaxIndexFirst_{name}", a, count=per)
        assert_same(got[1:8:2], rows.amax(1))
        assert got[:8].view(integer)[0::2].tolist() == first.tolist()
        got = run(f"WholeReduceMaxOnlyIndex_{name}", a, count=per)
        assert got.view(torch.int32)[:4].tolist() == first.tolist()
        assert_same(run(f"WholeReduceSum_{name}", a, count=per)[:4], rows.sum(1), 1e-5)
        assert_same(run(f"WholeReduceMax_{name}", a, count=5)[:8:2], rows[:, :5].amax(1))
        assert_same(run(f"ReduceRepeatMin_{name}", a)[:4], rows[:, 1::2].amin(1))

    @pytest.mark.parametrize("name", FLOATS)
    def test_data_blocks(self, name: str):
        dtype = TYPES[name]
        per, block = 256 // dtype.itemsize, 32 // dtype.itemsize
        a = values(dtype, n=4 * per).round()
        blocks = a.view(32, block)
        assert_same(run(f"BlockReduceSum_{name}", a, count=per)[:32], blocks.sum(1), 1e-5)
        assert_same(run(f"BlockReduceMax_{name}", a, count=per)[:32], blocks.amax(1))
        got = run(f"BlockReduceMax_{name}", a, out=torch.full_like(a, 99), count=block)
        assert got[0] == blocks[0].max()
        assert got[1:8].eq(99).all(), "blocks without active elements keep what dst had"


class TestMovement:
    def test_brcb(self):
        a = values(torch.float32)
        got = run("Brcb_float", a, out=torch.zeros(N), count=32)
        assert_same(got, a[:32].repeat_interleave(8))

    def test_copy_within_the_unified_buffer(self):
        a = values(torch.float32)
        assert_same(run("DataCopyLocal_float", a), a)

    def test_gather(self):
        a = values(torch.float32)
        order = torch.randperm(N - 2).int() * 4
        b = torch.zeros(N, dtype=torch.int32)
        b[: N - 2] = order
        got = run("Gather_float", a, b, count=N - 2, scalar=8)
        assert_same(got[: N - 2], a[order.long() // 4 + 2])

    @pytest.mark.parametrize("pattern", range(1, 8))
    def test_gather_mask_by_pattern(self, pattern: int):
        a = values(torch.float32)
        got = run("GatherMaskPattern_float", a, out=torch.zeros(N + 8), scalar=pattern)
        first, step = {1: (0, 2), 2: (1, 2), 7: (0, 1)}.get(pattern, (pattern - 3, 4))
        expected = a[first::step]
        assert_same(got[: len(expected)], expected)
        assert got[N] == len(expected)

    def test_gather_mask_by_tensor(self):
        a = values(torch.float32)
        bits = torch.randint(-(2**31), 2**31, (N,), dtype=torch.int64).int()
        chosen = torch.tensor([bits[i // 32].item() >> (i % 32) & 1 for i in range(70)]).bool()
        got = run("GatherMaskTensor_float", a, bits, out=torch.zeros(N + 8), count=70)
        assert_same(got[: int(chosen.sum())], a[:70][chosen])
        assert got[70] == chosen.sum()

    def test_strides_and_masks(self):
        a, b = values(torch.float32), values(torch.float32, 1)
        got = run("AddStrided_float", a, b, out=torch.full_like(a, 9))
        expected = torch.full_like(a, 9)
        for start in (0, 16, 128, 144):
            expected[start : start + 8] = (a + b)[start : start + 8]
        assert_same(got, expected)
        got = run("AddsMasked_float", a, out=torch.full_like(a, 9), scalar=2)
        expected = torch.full_like(a, 9)
        expected[:128:2] = a[:128:2] + 2
        assert_same(got, expected)
        narrow = values(torch.float16)
        got = run("CastStrided_float_half", narrow, out=torch.zeros(N))
        assert_same(got[:128], narrow[:128].float())
