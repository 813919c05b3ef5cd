"""The pieces the kernels are made of, one at a time."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl

from vllm_ascend_spec.ops.triton_kernels.arith import rate_of, read_uniforms, weight_of
from vllm_ascend_spec.ops.triton_kernels.draw import pick, pick_in_chunk
from vllm_ascend_spec.ops.triton_kernels.search import between, gather_tops, key_of, value_of
from vllm_ascend_spec.ops.triton_kernels.thresholds import min_p_limit
from vllm_ascend_spec.ops.triton_launch import words_of

INF = float("inf")


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(1)


@triton.jit
def keys_kernel(x, keys, values, SIZE: tl.constexpr, SHIFT: tl.constexpr):
    index = tl.arange(0, SIZE)
    key = key_of(tl.load(x + index), SHIFT)
    tl.store(keys + index, key)
    tl.store(values + index, value_of(key, SHIFT))


@pytest.mark.parametrize(
    ("dtype", "shift"), [(torch.float32, 0), (torch.bfloat16, 16), (torch.float16, 13)]
)
def test_keys_have_the_order_of_the_values(dtype: torch.dtype, shift: int) -> None:
    x = torch.cat([torch.randn(121) * 10 ** torch.linspace(-4, 4, 121), torch.tensor([0.0, -0.0])])
    x = torch.cat([x, torch.tensor([INF, -INF, 1.0, -1.0, 65504.0])]).to(dtype).float()
    keys, values = torch.empty(128, dtype=torch.int32), torch.empty(128)
    keys_kernel[(1,)](x, keys, values, SIZE=128, SHIFT=shift)
    assert torch.equal(keys[:, None] < keys[None, :], x[:, None] < x[None, :])
    finite = x > -INF
    # The lowest float of a key lies above all smaller values of this dtype.
    assert bool((values <= x)[finite].all())
    lower = torch.where(x[None, :] < x[:, None], x[None, :], -INF).amax(dim=1)
    assert bool((values > lower)[finite].all())


@triton.jit
def between_kernel(low, high, out):
    tl.store(out, between(tl.load(low), tl.load(high)))


@pytest.mark.parametrize(
    ("low", "high"), [(-(2**31), 2**31 - 1), (-5, 2), (7, 8), (2**31 - 3, 2**31 - 1), (-9, -4)]
)
def test_the_middle_of_two_integers_does_not_overflow(low: int, high: int) -> None:
    out = torch.empty(1, dtype=torch.int32)
    bounds = [torch.tensor([bound], dtype=torch.int32) for bound in (low, high)]
    between_kernel[(1,)](*bounds, out)
    assert int(out) == (low + high) // 2


@triton.jit
def uniforms_kernel(words, out, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(out + index, read_uniforms(words, index, index < SIZE))


def test_uniforms_are_cut_off_rather_than_rounded() -> None:
    u = torch.rand(256, dtype=torch.float64)
    u[:5] = torch.tensor([0.0, 1 - 2**-53, 0.5, 2**-53, 1e-300], dtype=torch.float64)
    out = torch.empty(256)
    uniforms_kernel[(1,)](words_of(u), out, SIZE=256)
    assert bool((out < 1).all())
    assert bool((out.double() <= u).all())
    next_up = torch.nextafter(out, torch.tensor(1.0)).double()
    assert bool((next_up > u).all())


@triton.jit
def rates_kernel(t, rates, weights, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    rate = rate_of(tl.load(t + index))
    tl.store(rates + index, rate)
    tl.store(weights + index, weight_of(-10.0 - index * 0.0, 0.0, rate))


def test_rates_are_right_to_the_last_bit() -> None:
    t = torch.linspace(0.01, 3, 1024)
    rates, weights = torch.empty(1024), torch.empty(1024)
    rates_kernel[(1,)](t, rates, weights, SIZE=1024)
    exact = math.log2(math.e) / t.double()
    assert float(((rates.double() - exact) / exact).abs().max()) < 2**-24 * 1.02
    error = (weights.double() - (-10 / t.double()).exp()).abs()
    assert float(error.max()) < 1e-7


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e37, 3e38])
def test_rates_of_extreme_temperatures_are_finite_and_positive(temperature: float) -> None:
    rates, weights = torch.empty(1), torch.empty(1)
    rates_kernel[(1,)](torch.tensor([temperature]), rates, weights, SIZE=1)
    assert 0 < float(rates) < INF
    assert 0 <= float(weights) <= 1


@triton.jit
def pick_kernel(weights, goals, out, SIZE: tl.constexpr):
    chosen, before = pick(tl.load(weights + tl.arange(0, SIZE)), tl.load(goals), SIZE)
    tl.store(out, chosen)
    tl.store(out + 1, before)


@pytest.mark.parametrize(
    ("goal", "chosen", "before"),
    [(0.0, 1, 0), (0.9, 1, 0), (1.0, 3, 1), (2.9, 3, 1), (3.0, 6, 3), (9.0, 6, 3), (-1.0, 1, 0)],
)
def test_picking_skips_what_has_no_weight(goal: float, chosen: int, before: int) -> None:
    weights = torch.tensor([0.0, 1, 0, 2, 0, 0, 5, 0])
    out = torch.empty(2)
    pick_kernel[(1,)](weights, torch.tensor([goal]), out, SIZE=8)
    assert out.tolist() == [chosen, before]


@triton.jit
def pick_in_chunk_kernel(weights, goals, out, SIDE: tl.constexpr):
    line = tl.arange(0, SIDE)
    square = tl.load(weights + line[:, None] * SIDE + line[None, :])
    tl.store(out, pick_in_chunk(2, square, tl.load(goals), SIDE))


def test_picking_in_a_chunk_goes_by_the_running_sum() -> None:
    weights = torch.rand(256) * (torch.rand(256) < 0.5)
    for step in range(1, 20):
        goal = weights.sum() * step / 20
        out = torch.empty(1, dtype=torch.int32)
        pick_in_chunk_kernel[(1,)](weights, goal[None], out, SIDE=16)
        assert int(out) - 2 * 256 == int((weights.double().cumsum(0) <= goal).sum())


@triton.jit
def tops_kernel(row, size, first, second, floor, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    one, two, highest_third = gather_tops(row, size, 5, LANES, 1)
    tl.store(first + lane, one)
    tl.store(second + lane, two)
    tl.store(floor, highest_third)


@pytest.mark.parametrize("size", [1, 20, 40, 333])
def test_tops_hold_all_that_is_above_their_floor(size: int) -> None:
    row = (torch.randn(size) * 8).round() / 4
    tops, floor = torch.empty(2, 16), torch.empty(1)
    tops_kernel[(1,)](row, size, tops[0], tops[1], floor, LANES=16)
    row[5:6] = -INF
    above = sorted(row[row > floor].tolist())
    assert sorted(tops[tops > floor].tolist()) == above
    assert size > 32 or float(floor) == -INF


@triton.jit
def min_p_kernel(peak, temperature, min_p, limits, distances, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    floors = tl.load(min_p + index)
    tl.store(limits + index, min_p_limit(tl.load(peak), tl.load(temperature), floors))
    tl.store(distances + index, tl.load(temperature) * tl.log(floors))


@pytest.mark.parametrize("peak", [-300.0, -1.0, 0.0, 0.3, 30.0])
def test_min_p_keeps_what_is_as_near_to_the_peak_as_allowed(peak: float) -> None:
    min_p = torch.rand(256)
    min_p[:2] = torch.tensor([1.0, 1e-30])
    limits, distances = torch.empty(256), torch.empty(256)
    peak, temperature = torch.tensor([peak]), torch.tensor([0.01])
    min_p_kernel[(1,)](peak, temperature, min_p, limits, distances, SIZE=256)
    # The lowest float that is near enough; the one below is not, or falls on the same distance.
    assert bool((limits - peak >= distances).all())
    below = torch.nextafter(limits, torch.tensor(-INF)).double() - peak.double()
    assert bool((below < distances.double() * (1 - 1e-7)).all())
    assert float(limits[0]) == float(peak)


def test_min_p_of_0_keeps_everything() -> None:
    limits, distances = torch.empty(1), torch.empty(1)
    one = torch.ones(1)
    min_p_kernel[(1,)](one, one, torch.zeros(1), limits, distances, SIZE=1)
    assert float(limits) == -INF
