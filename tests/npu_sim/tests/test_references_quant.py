"""Quantisation against loops over Python numbers."""

import math

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError
from npu_sim.references.registry import META

OPS = load_all()
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def numbers(*shape, dtype=torch.float32, factor=1.0):
    generator = torch.Generator().manual_seed(sum(shape) + 1)
    return (torch.randn(*shape, generator=generator) * factor).to(dtype)


def eights(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-128, 128, shape, generator=generator).to(torch.int8)


def clamped(value):
    return max(-128, min(127, round(value)))  # Python rounds halves to even as well


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 5), (0, 4)])
@pytest.mark.parametrize("smooth", [False, True])
def test_dynamic_quant(shape, dtype, smooth):
    x = numbers(*shape, dtype=dtype, factor=3)
    factors = numbers(shape[-1], dtype=dtype).abs() if smooth else None
    y, scale = OPS["npu::npu_dynamic_quant"](x, smooth_scales=factors)
    assert y.dtype == torch.int8
    assert y.shape == x.shape
    assert scale.dtype == torch.float32
    assert scale.shape == x.shape[:-1]
    rows = (x.float() * (factors.float() if smooth else 1)).reshape(-1, shape[-1]).tolist()
    for row, got, s in zip(rows, y.reshape(-1, shape[-1]).tolist(), scale.flatten(), strict=True):
        assert float(s) == pytest.approx(max(map(abs, row)) / 127, rel=1e-6)
        assert got == [clamped(float(torch.tensor(v) / s)) for v in row]


def test_a_row_of_zeros_stays_zero():
    y, scale = OPS["npu::npu_dynamic_quant"](torch.zeros(2, 3))
    assert not y.any()
    assert not scale.any()


def test_groups_of_rows_have_their_own_smoothing():
    x, factors = numbers(5, 4), numbers(3, 4).abs()
    y, scale = OPS["npu::npu_dynamic_quant"](
        x, smooth_scales=factors, group_index=torch.tensor([2, 2, 5], dtype=torch.int32)
    )
    for a, b, g in ((0, 2, 0), (2, 5, 2)):
        want = OPS["npu::npu_dynamic_quant"](x[a:b] * factors[g])
        assert torch.equal(y[a:b], want[0])
        assert torch.equal(scale[a:b], want[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_norm_and_quantize_in_one(dtype):
    x1, x2, gamma = (numbers(*shape, dtype=dtype) for shape in ((3, 8), (4, 8), (8,)))
    x2 = x2[:3]
    scale, zero = torch.full((8,), 0.03, dtype=dtype), torch.full((8,), -7.0, dtype=dtype)
    got, _, total = OPS["npu::npu_add_rms_norm_quant"](x1, x2, gamma, scale, zero, epsilon=1e-5)
    normed, _, summed = OPS["_C_ascend::npu_add_rms_norm_bias"](x1, x2, gamma, None, 1e-5)
    assert torch.equal(total, summed)
    assert got.dtype == torch.int8
    step = float(scale[0])
    want = [[clamped(round(v / step) - 7) for v in row] for row in normed.tolist()]
    off = (got.int() - torch.tensor(want)).abs()
    # float32 divides otherwise than Python's double precision.
    assert off.max() <= 1
    assert (off > 0).sum() <= 1
    with pytest.raises(OpError, match="scales1"):
        OPS["npu::npu_add_rms_norm_quant"](x1, x2, gamma, scale[:3], zero)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothed", [False, True])
def test_add_rms_norm_dynamic_quant(dtype, smoothed):
    x1, x2, gamma, beta = (numbers(*shape, dtype=dtype) for shape in ((3, 8), (3, 8), (8,), (8,)))
    smooth = numbers(8, dtype=dtype).abs() + 0.5 if smoothed else None
    got, _, total, scale, _ = OPS["npu::npu_add_rms_norm_dynamic_quant"](
        x1, x2, gamma, smooth_scale1=smooth, beta=beta, epsilon=1e-5, output_mask=[True, False]
    )
    normed, _, summed = OPS["_C_ascend::npu_add_rms_norm_bias"](x1, x2, gamma, beta, 1e-5)
    assert torch.equal(total, summed)
    assert got.dtype == torch.int8
    rows = normed.double() if smooth is None else normed.double() * smooth.double()
    torch.testing.assert_close(scale.double(), rows.abs().amax(-1) / 127, atol=1e-6, rtol=1e-6)
    assert ((got * scale.unsqueeze(-1)).double() - rows).abs().max() <= 0.51 * float(scale.max())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"output_mask": [True, True]}, r"output_mask is \[True, True\]"),
        ({"smooth_scale2": torch.ones(8)}, "no reference for smooth_scale2"),
        ({"y_dtype": torch.float16}, "y_dtype is torch.float16"),
    ],
)
def test_add_rms_norm_dynamic_quant_refuses(changed, reason):
    x = torch.ones(2, 8)
    with pytest.raises(OpError, match=reason):
        OPS["npu::npu_add_rms_norm_dynamic_quant"](x, x, torch.ones(8), **changed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wide", [False, True])
def test_quantize_as_vllm_ascend_calls_it(dtype, wide):
    x = numbers(3, 5, dtype=dtype, factor=9)
    count = 5 if wide else 1
    reciprocal, offset = numbers(count, dtype=dtype).abs() * 8, numbers(count, dtype=dtype) * 4
    got = OPS["npu::npu_quantize"](x, reciprocal, offset, torch.qint8, -1, False)
    for i in range(3):
        for j in range(5):
            c = j if wide else 0
            exact = x[i, j].float() * reciprocal[c].float() + offset[c].float()
            assert got[i, j] == clamped(float(exact))


@pytest.mark.parametrize(("axis", "size"), [(0, 3), (1, 4), (-1, 4)])
def test_quantize_by_division_along_an_axis(axis, size):
    x, scale = numbers(3, 4, factor=20), numbers(size).abs() + 0.1
    zero = torch.arange(size).int()
    got = OPS["npu::npu_quantize"](x, scale, zero, 12, axis)
    for i in range(3):
        for j in range(4):
            at = i if axis == 0 else j
            assert got[i, j] == max(-128, min(127, round(float(x[i, j] / scale[at])) + at))


def product(x1, x2, i, j):
    return sum(int(a) * int(b) for a, b in zip(x1[i], x2[:, j], strict=True))


@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("bias", [None, torch.int32, torch.float32])
def test_quant_matmul(target, per_token, bias):
    x1, x2, scale = eights(3, 9), eights(9, 5), numbers(5).abs() * 1e-3
    tokens = numbers(3).abs() if per_token else None
    added = None if bias is None else (numbers(5) * 50).to(bias)
    got = OPS["npu::npu_quant_matmul"](
        x1, x2, scale, pertoken_scale=tokens, bias=added, output_dtype=target
    )
    assert got.dtype == target
    for i in range(3):
        for j in range(5):
            want = product(x1, x2, i, j)
            want += int(added[j]) if bias == torch.int32 else 0
            want *= float(scale[j]) * (float(tokens[i]) if per_token else 1)
            want += float(added[j]) if bias == torch.float32 else 0
            tolerance = 1e-5 if target == torch.float32 else 1e-2
            assert float(got[i, j]) == pytest.approx(want, rel=tolerance, abs=tolerance)


def test_quant_matmul_to_integers():
    x1, x2 = eights(2, 3, 4), eights(4, 5)
    one = torch.ones(1)
    raw = OPS["npu::npu_quant_matmul"](x1, x2, one, output_dtype=torch.int32)
    assert raw.dtype == torch.int32
    for b in range(2):
        for i in range(3):
            for j in range(5):
                assert raw[b, i, j] == product(x1[b], x2, i, j)
    scale, offset = torch.tensor([0.004]), torch.tensor([3.0])
    got = OPS["npu::npu_quant_matmul"](x1, x2, scale, offset=offset)
    assert got.dtype == torch.int8
    want = [clamped(float(v * scale + offset)) for v in raw.flatten().float()]
    assert got.flatten().tolist() == want


def test_a_scale_in_the_lower_half_of_an_int64():
    x1, x2, scale = eights(2, 3), eights(3, 4), numbers(4).abs()
    packed = (scale.view(torch.int32).long() & 0xFFFFFFFF) + (7 << 40)  # something above it
    got, want = (
        OPS["npu::npu_quant_matmul"](x1, x2, s, output_dtype=torch.float16) for s in (packed, scale)
    )
    assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "group"), [((1,), 0), ((6,), 0), ((1, 6), 0), ((2, 6), 32)])
@pytest.mark.parametrize("with_offset", [False, True])
def test_weight_quant_batchmatmul(dtype, shape, group, with_offset):
    x, weight, bias = numbers(3, 40, dtype=dtype), eights(40, 6), numbers(6)
    scale = numbers(*shape, dtype=dtype).abs() * 0.05
    offset = numbers(*shape, dtype=dtype) if with_offset else None
    got = OPS["npu::npu_weight_quant_batchmatmul"](
        x, weight, scale, offset, None, None, bias, group
    )
    assert got.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2

    def at(factor, row, column):
        if factor is None:
            return 0.0
        flat = factor[row // group] if group else factor.reshape(-1)
        return float(flat[column if flat.numel() > 1 else 0])

    for i in range(3):
        for j in range(6):
            want = float(bias[j]) + sum(
                float(x[i, r]) * (int(weight[r, j]) + at(offset, r, j)) * at(scale, r, j)
                for r in range(40)
            )
            assert float(got[i, j]) == pytest.approx(want, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize(
    ("name", "arguments", "keywords", "reason"),
    [
        ("npu_dynamic_quant", (torch.ones(3),), {}, "valid: 2 or more"),
        ("npu_dynamic_quant", (torch.ones(3, 2),), {"dst_type": 16}, "dst_type is 16"),
        ("npu_dynamic_quant", (torch.ones(3, 2),), {"dst_type": torch.quint8}, "torch.quint8"),
        ("npu_dynamic_quant", (torch.ones(3, 2),), {"quant_mode": "perchannel"}, "quant_mode"),
        (
            "npu_dynamic_quant",
            (torch.ones(3, 2),),
            {"smooth_scales": torch.ones(3)},
            "smooth_scales has shape",
        ),
        (
            "npu_dynamic_quant",
            (torch.ones(3, 2),),
            {"group_index": torch.ones(1)},
            "no reference for group_index",
        ),
        (
            "npu_dynamic_quant",
            (torch.ones(3, 2),),
            {"smooth_scales": torch.ones(1, 2), "group_index": torch.tensor([2]).int()},
            "does not divide 3 rows",
        ),
        ("npu_quantize", (torch.ones(3, 2), torch.ones(3), None, 1, -1, False), {}, "scales has"),
        ("npu_quantize", (torch.ones(3, 2), torch.ones(1), None, torch.quint4x2), {}, "dtype is"),
        ("npu_quant_matmul", (eights(2, 3), eights(4, 2), torch.ones(1)), {}, "does not fit"),
        ("npu_quant_matmul", (torch.ones(2, 3), eights(3, 2), torch.ones(1)), {}, "x1 is"),
        ("npu_quant_matmul", (eights(2, 3), eights(3, 2), torch.ones(3)), {}, "scale has shape"),
        (
            "npu_quant_matmul",
            (eights(2, 3), eights(3, 2), torch.ones(1)),
            {"output_dtype": torch.float16, "offset": torch.ones(1)},
            "no reference for offset",
        ),
        (
            "npu_quant_matmul",
            (eights(2, 3), eights(3, 2), torch.ones(1)),
            {"pertoken_scale": torch.ones(3)},
            "pertoken_scale has shape",
        ),
        (
            "npu_quant_matmul",
            (eights(2, 3), eights(3, 2), torch.ones(1)),
            {"group_sizes": [1, 1, 32]},
            "no reference for group_sizes",
        ),
        (
            "npu_weight_quant_batchmatmul",
            (torch.ones(2, 3), torch.ones(3, 1, dtype=torch.int32), torch.ones(1)),
            {},
            "weight is torch.int32",
        ),
        (
            "npu_weight_quant_batchmatmul",
            (torch.ones(2, 40), eights(40, 6), torch.ones(2, 6)),
            {"antiquant_group_size": 33},
            "antiquant_group_size is 33",
        ),
        (
            "npu_weight_quant_batchmatmul",
            (torch.ones(2, 40), eights(40, 6), torch.ones(3, 6)),
            {"antiquant_group_size": 32},
            "antiquant_scale has shape",
        ),
        (
            "npu_weight_quant_batchmatmul",
            (torch.ones(2, 3), eights(3, 6), torch.ones(6)),
            {"quant_scale": torch.ones(6)},
            "no reference for quant_scale",
        ),
    ],
)
def test_refused(name, arguments, keywords, reason):
    with pytest.raises(OpError, match=rf"^npu::{name}: .*{reason}"):
        OPS[f"npu::{name}"](*arguments, **keywords)


SCALE_AND_HALVE = "_C_ascend::npu_dequant_swiglu_quant"
PLAIN = {"swiglu_mode": 0}
# As vllm-ascend's shared experts ask for it, and with everything else.
SHARED = {"swiglu_mode": 1}
BOUNDED = {"swiglu_mode": 1, "clamp_limit": 0.9, "glu_alpha": 1.7, "glu_bias": 0.5}
# Of no effect in mode 0.
IDLE = {"swiglu_mode": 0, "clamp_limit": 0.9, "glu_alpha": 1.7, "glu_bias": 0.5}


@pytest.mark.parametrize("how", [PLAIN, SHARED, BOUNDED, IDLE])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("shape", [(3, 64), (2, 2, 128), (0, 64)])
@pytest.mark.parametrize("per_token", [True, False])
def test_dequant_swiglu_quant(shape, left, how, per_token):
    generator = torch.Generator().manual_seed(6)
    x = torch.randint(-400, 400, shape, generator=generator, dtype=torch.int32)
    weight_scale = numbers(shape[-1]).abs() * 0.01
    tokens = numbers(*shape[:-1], 1).abs() if per_token else None
    keywords = {"weight_scale": weight_scale, "activation_scale": tokens, "activate_left": left}
    keywords |= {"quant_mode": 1, **how}
    y, scale = OPS[SCALE_AND_HALVE](x, **keywords)
    flat, half = x.reshape(-1, shape[-1]), shape[-1] // 2
    used = how if how["swiglu_mode"] == 1 else {}
    limit = used.get("clamp_limit") or math.inf
    for i, products in enumerate(flat.tolist()):
        factor = float(tokens.flatten()[i]) if per_token else 1.0
        row = [v * float(s) * factor for v, s in zip(products, weight_scale, strict=True)]
        gate, up = (row[:half], row[half:]) if left else (row[half:], row[:half])
        want = [
            min(g, limit)
            / (1 + math.exp(-used.get("glu_alpha", 1.0) * min(g, limit)))
            * (max(-limit, min(limit, u)) + used.get("glu_bias", 0.0))
            for g, u in zip(gate, up, strict=True)
        ]
        step = max(map(abs, want)) / 127
        assert float(scale.flatten()[i]) == pytest.approx(step, rel=1e-5)
        exact = torch.tensor(want).double() / step
        assert (y.reshape(-1, half)[i].double() - exact).abs().max() <= 0.5 + 1e-3
    found = [(t.shape, t.dtype) for t in (y, scale)]
    assert [(t.shape, t.dtype) for t in META[SCALE_AND_HALVE](x, **keywords)] == found


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"x": torch.ones(2, 64)}, "x is torch.float32"),
        ({"x": torch.ones(64, dtype=torch.int32)}, "x has 1 dimensions"),
        ({"x": torch.ones(2, 96, dtype=torch.int32)}, "x has 96 columns; valid: multiples of 64"),
        ({"weight_scale": None}, "weight_scale was not given"),
        ({"weight_scale": torch.ones(2, 64)}, "weight_scale has shape"),
        ({"weight_scale": torch.ones(64).half()}, "weight_scale is torch.float16"),
        ({"activation_scale": torch.ones(3)}, "activation_scale has 3 elements; valid: 2"),
        ({"activation_scale": torch.ones(2).half()}, "activation_scale is torch.float16"),
        ({"quant_mode": 0}, "quant_mode is 0"),
        ({"swiglu_mode": 2}, "swiglu_mode is 2"),
        ({"clamp_limit": -1.0}, "clamp_limit is -1.0"),
        ({"group_index": torch.tensor([2])}, "no reference for group_index"),
        ({"bias": torch.ones(64)}, "no reference for bias"),
        ({"quant_scale": torch.ones(32)}, "no reference for quant_scale"),
    ],
)
def test_dequant_swiglu_quant_refuses(changed, reason):
    arguments = {
        "x": torch.ones(2, 64, dtype=torch.int32),
        "weight_scale": torch.ones(64),
        "activation_scale": torch.ones(2),
        "quant_mode": 1,
        "swiglu_mode": 1,
        **changed,
    }
    with pytest.raises(OpError, match=rf"^{SCALE_AND_HALVE}: .*{reason}"):
        OPS[SCALE_AND_HALVE](**arguments)
