"""Rotary embeddings against complex numbers in float64."""

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError

OPS = load_all()
MODES = ["half", "interleave"]


def turned(x, angles, mode):
    """Rotate pairs of the last dimension of x as complex numbers.

    Args:
        x: [..., size].
        angles: [..., size / 2], broadcast.
        mode: Which dimensions are a pair.
    """
    x = x.double()
    pairs = torch.stack(x.chunk(2, -1), -1) if mode == "half" else x.unflatten(-1, (-1, 2))
    result = torch.view_as_real(
        torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)
    )
    if mode == "half":
        return torch.cat((result[..., 0], result[..., 1]), -1)
    return result.flatten(-2)


def spread(angles, mode):
    """Give cosines and sines per dimension from angles per pair."""
    both = torch.cat((angles, angles), -1) if mode == "half" else angles.repeat_interleave(2, -1)
    return both.cos().float(), both.sin().float()


def table(positions, rotary_size):
    """Give angles [positions, rotary_size / 2] and vLLM's table of cosines and sines."""
    angles = torch.outer(
        torch.arange(positions).double(),
        10000.0 ** (-torch.arange(0, rotary_size, 2) / rotary_size),
    )
    return angles, torch.cat((angles.cos(), angles.sin()), -1).float()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(2, 3, 5, 16), (1, 1, 1, 2), (0, 3, 1, 4)])
def test_rotary_mul(shape, mode):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    angles = torch.randn(shape[0], shape[1], 1, shape[3] // 2, generator=generator).double()
    cos, sin = spread(angles, mode)
    got = OPS["npu::npu_rotary_mul"](x, cos, sin, mode)
    torch.testing.assert_close(got.double(), turned(x, angles, mode), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", ["BSND", "TND"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_apply_rotary_pos_emb_is_in_place(layout, dtype):
    lead = (2, 3) if layout == "BSND" else (5,)
    query, key = torch.randn(*lead, 4, 64).to(dtype), torch.randn(*lead, 2, 64).to(dtype)
    angles = torch.randn(*lead, 1, 32).double()
    cos, sin = (t.to(dtype) for t in spread(angles, "half"))
    want = [turned(x, angles, "half") for x in (query, key)]
    got = OPS["npu::npu_apply_rotary_pos_emb"](query, key, cos, sin, layout)
    assert got[0] is query
    assert got[1] is key
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.double(), b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("mode", [*MODES, "interleaved"])
@pytest.mark.parametrize(("head_size", "rotary_size"), [(16, 16), (48, 32)])
@pytest.mark.parametrize("positions", [[], [0], [6, 2, 2, 5]])
def test_mrope_by_positions(positions, head_size, rotary_size, mode):
    angles, cache = table(7, rotary_size)
    count = len(positions)
    query, key = torch.randn(count, 3 * head_size), torch.randn(count, head_size)
    got = OPS["npu::npu_mrope"](
        torch.tensor(positions, dtype=torch.int64),
        query,
        key,
        cache,
        head_size,
        mrope_section=[0, 0, 0],
        rotary_mode=mode,
        cache_mode="default",
    )
    for x, y in zip((query, key), got, strict=True):
        want = x.double().reshape(count, x.shape[1] // head_size, head_size).clone()
        pairs = "half" if mode == "half" else "interleave"
        at = angles[positions].unsqueeze(1)
        want[..., :rotary_size] = turned(want[..., :rotary_size], at, pairs)
        torch.testing.assert_close(y.double(), want.reshape(x.shape), atol=1e-5, rtol=1e-5)
    assert not count or got[0].data_ptr() != query.data_ptr()


@pytest.mark.parametrize("mode", MODES)
def test_mrope_by_three_positions(mode):
    angles, cache = table(9, 32)
    positions = torch.tensor([[0, 4, 4, 8], [1, 4, 5, 8], [2, 5, 4, 8]])
    query, key = torch.randn(4, 96), torch.randn(4, 48)
    got = OPS["npu::npu_mrope"](
        positions, query, key, cache, 48, mrope_section=[4, 6, 6], rotary_mode=mode
    )
    owner = torch.tensor([0] * 4 + [1] * 6 + [2] * 6)
    at = angles[positions[owner].T, torch.arange(16)].unsqueeze(1)
    for x, y in zip((query, key), got, strict=True):
        want = x.double().reshape(4, -1, 48).clone()
        want[..., :32] = turned(want[..., :32], at, mode)
        torch.testing.assert_close(y.double(), want.reshape(x.shape), atol=1e-5, rtol=1e-5)
    same = positions[:1].expand(3, -1)
    plain = OPS["npu::npu_mrope"](positions[0], query, key, cache, 48, rotary_mode=mode)
    of_text = OPS["npu::npu_mrope"](
        same, query, key, cache, 48, mrope_section=[4, 6, 6], rotary_mode=mode
    )
    for a, b in zip(of_text, plain, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("neox", [True, False])
def test_atb_rotates_in_place_as_mrope_does(neox):
    _, cache = table(9, 16)
    positions = torch.tensor([8, 0, 3])
    query, key = torch.randn(3, 32), torch.randn(3, 16)
    want = OPS["npu::npu_mrope"](
        positions, query, key, cache, 16, rotary_mode="half" if neox else "interleave"
    )
    assert OPS["atb::_npu_rotary_embedding"](positions, query, key, 16, cache, neox) is None
    torch.testing.assert_close(query, want[0])
    torch.testing.assert_close(key, want[1])


X = torch.zeros(1, 1, 1, 4)


@pytest.mark.parametrize(
    ("name", "arguments", "keywords", "reason"),
    [
        ("npu::npu_rotary_mul", (X, X, X, "quarter"), {}, "rotary_mode is 'quarter'"),
        ("npu::npu_rotary_mul", (X, X, X), {"rotate": torch.eye(4)}, "no reference for rotate"),
        ("npu::npu_rotary_mul", (X[..., :3], X[..., :3], X[..., :3]), {}, "valid: even"),
        ("npu::npu_rotary_mul", (X, X.expand(2, 1, 1, 4), X), {}, "does not fit"),
        ("npu::npu_apply_rotary_pos_emb", (X, X, X, X), {}, "last dimension is 4; valid: 64, 128"),
        ("npu::npu_apply_rotary_pos_emb", (X, X, X, X, "BNSD"), {}, "layout is 'BNSD'"),
    ],
)
def test_refused(name, arguments, keywords, reason):
    with pytest.raises(OpError, match=rf"^{name}: .*{reason}"):
        OPS[name](*arguments, **keywords)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"positions": torch.tensor([7])}, "beyond a table of 7"),
        ({"positions": torch.tensor([-1])}, "beyond a table of 7"),
        ({"positions": torch.zeros(3, 1, dtype=torch.int64)}, "positions has shape"),
        ({"mrope_section": [2, 3, 3]}, "positions has shape"),
        (
            {"mrope_section": [2, 3, 4], "positions": torch.zeros(3, 1, dtype=torch.int64)},
            "valid: three that make up half of 16",
        ),
        ({"cache_mode": "interleave"}, "cache_mode is 'interleave'"),
        ({"cos_sin_cache": torch.zeros(7, 8)}, "rotary size 8; valid: multiples of 16"),
        ({"cos_sin_cache": torch.zeros(7, 32)}, "up to the head's 16"),
        ({"query": torch.zeros(1, 24)}, "24 columns are not heads of 16"),
        ({"key": torch.zeros(1, 16, dtype=torch.bfloat16)}, "dtypes differ"),
    ],
)
def test_mrope_refuses(changed, reason):
    arguments = {
        "positions": torch.tensor([0]),
        "query": torch.zeros(1, 16),
        "key": torch.zeros(1, 16),
        "cos_sin_cache": torch.zeros(7, 16),
        "head_size": 16,
    }
    with pytest.raises(OpError, match=rf"^npu::npu_mrope: .*{reason}"):
        OPS["npu::npu_mrope"](**{**arguments, **changed})
