"""What MLA needs besides attention, against float64."""

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError

OPS = load_all()
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2}


def numbers(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def turned(x, angles):
    """Rotate pairs (2i, 2i + 1) as complex numbers; give real parts, then imaginary parts."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    result = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((result.real, result.imag), -1)


def angles_of(*shape, dtype=torch.float32):
    """Give angles per pair, and cosines and sines per dimension."""
    angles = numbers(*shape, 32).double()
    both = torch.cat((angles, angles), -1)
    return angles, both.cos().to(dtype), both.sin().to(dtype)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", [(3, 5, 1), (2, 1, 4), (0, 2, 1)])
def test_interleave_rope(shape, dtype):
    batch, heads, seq = shape
    x = numbers(batch, heads, seq, 64, dtype=dtype)
    angles, cos, sin = angles_of(batch, 1, seq, dtype=dtype)
    got = OPS["npu::npu_interleave_rope"](x, cos, sin)
    want = turned(x, angles)
    torch.testing.assert_close(got.double(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def cached(slots, *, dtype=torch.float32, **changed):
    count = len(slots)
    angles, cos, sin = angles_of(count, 1, 1, dtype=dtype)
    arguments = {
        "kv": numbers(count, 1, 1, 576, dtype=dtype),
        "gamma": numbers(512, dtype=dtype),
        "cos": cos,
        "sin": sin,
        "index": torch.tensor(slots, dtype=torch.int64),
        "k_cache": torch.full((3, 4, 1, 64), 9.0, dtype=dtype),
        "ckv_cache": torch.full((3, 4, 1, 512), 9.0, dtype=dtype),
        "epsilon": 1e-6,
        "cache_mode": "PA",
        "is_output_kv": True,
        **changed,
    }
    return arguments, angles, OPS["npu::npu_kv_rmsnorm_rope_cache"](**arguments)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("slots", [[], [0], [11, 3, -1, 4]])
def test_kv_rmsnorm_rope_cache(slots, dtype):
    arguments, angles, (k_cache, ckv_cache, rope, latent) = cached(slots, dtype=dtype)
    assert k_cache is arguments["k_cache"]
    assert ckv_cache is arguments["ckv_cache"]
    kv = arguments["kv"].double()
    norm = torch.sqrt(kv[..., :512].pow(2).mean(-1, keepdim=True) + 1e-6)
    want_latent = kv[..., :512] / norm * arguments["gamma"].double()
    want_rope = turned(arguments["kv"][..., 512:], angles)
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(latent.double(), want_latent, **close)
    torch.testing.assert_close(rope.double(), want_rope, **close)
    written = {slot: i for i, slot in enumerate(slots) if slot >= 0}
    for slot in range(12):
        at = (slot // 4, slot % 4, 0)
        if slot in written:
            assert torch.equal(k_cache[at], rope[written[slot], 0, 0])
            assert torch.equal(ckv_cache[at], latent[written[slot], 0, 0])
        else:
            assert (k_cache[at] == 9).all()
            assert (ckv_cache[at] == 9).all()


def test_without_the_outputs_the_caches_are_written_all_the_same():
    _, _, with_outputs = cached([2, 5])
    _, _, without = cached([2, 5], is_output_kv=False)
    for a, b in zip(with_outputs[:2], without[:2], strict=True):
        assert torch.equal(a, b)
    assert not without[2].any()
    assert not without[3].any()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cache_mode": "PA_NZ"}, "cache_mode is 'PA_NZ'"),
        ({"c_kv_scale": torch.ones(512)}, "no reference for c_kv_scale"),
        ({"index": torch.tensor([12])}, "slot 12 is beyond 3 blocks of 4"),
        ({"index": torch.tensor([1], dtype=torch.int32)}, "index is torch.int32"),
        ({"kv": torch.zeros(1, 1, 1, 575)}, "kv has shape"),
        ({"gamma": torch.zeros(512, dtype=torch.bfloat16)}, "dtypes differ"),
    ],
)
def test_kv_rmsnorm_rope_cache_refuses(changed, reason):
    with pytest.raises(OpError, match=rf"^npu::npu_kv_rmsnorm_rope_cache: .*{reason}"):
        cached([1], **changed)


@pytest.mark.parametrize("kind", [0, 1])
def test_attention_update_merges_parts_of_the_keys(kind):
    scores, values = numbers(4, 9).double(), numbers(9, 3).double()
    parts = [slice(0, 2), slice(2, 3), slice(3, 9)]
    sums = [torch.logsumexp(scores[:, part], -1).float() for part in parts]
    outs = [(scores[:, part].softmax(-1) @ values[part]).float() for part in parts]
    sums.append(torch.full((4,), float("inf")))  # a part that saw no key
    outs.append(torch.zeros(4, 3))
    merged, total = OPS["npu::npu_attention_update"](sums, outs, kind)
    torch.testing.assert_close(merged.double(), scores.softmax(-1) @ values, atol=1e-5, rtol=1e-5)
    want = torch.logsumexp(scores, -1) if kind else torch.zeros(4).double()
    torch.testing.assert_close(total.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("perm_x1", [None, [1, 0, 2]])
@pytest.mark.parametrize("perm_y", [None, [1, 0, 2]])
def test_transpose_batchmatmul(perm_x1, perm_y, dtype):
    batch, m, k, n = 3, 2, 5, 4
    left, right = numbers(batch, m, k, dtype=dtype), numbers(batch, k, n, dtype=dtype)
    given = left.transpose(0, 1) if perm_x1 else left
    got = OPS["npu::npu_transpose_batchmatmul"](given, right, perm_x1=perm_x1, perm_y=perm_y)
    assert got.is_contiguous()
    for b in range(batch):
        want = left[b].double() @ right[b].double()
        part = got[:, b] if perm_y else got[b]
        torch.testing.assert_close(
            part.double(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize(
    ("name", "arguments", "keywords", "reason"),
    [
        ("npu_interleave_rope", [torch.zeros(1, 1, 1, 32)] * 3, {}, "x has shape"),
        (
            "npu_interleave_rope",
            [torch.zeros(1, 2, 3, 64), *[torch.zeros(1, 1, 2, 64)] * 2],
            {},
            "cos has shape",
        ),
        ("npu_attention_update", [[], [], 0], {}, "0 log sums"),
        ("npu_attention_update", [[torch.zeros(2)], [torch.zeros(3, 1)], 0], {}, "local_out has"),
        ("npu_attention_update", [[torch.zeros(2)], [torch.zeros(2, 1)], 2], {}, "update_type"),
        ("npu_transpose_batchmatmul", [torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)], {}, "not fit"),
        (
            "npu_transpose_batchmatmul",
            [torch.zeros(1, 1, 1)] * 2,
            {"scale": torch.ones(1)},
            "no reference for scale",
        ),
    ],
)
def test_refused(name, arguments, keywords, reason):
    with pytest.raises(OpError, match=rf"^npu::{name}: .*{reason}"):
        OPS[f"npu::{name}"](*arguments, **keywords)
