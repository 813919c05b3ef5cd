"""Root-mean-square norms against a float64 loop over rows."""

import numpy as np
import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError

OPS = load_all()
SHAPES = [(1, 1), (3, 7), (5, 2, 33), (0, 8)]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def looped(x, gamma, epsilon):
    """Norm row by row in float64; give the rows and the reciprocal root mean squares."""
    rows = x.double().reshape(-1, gamma.numel()).numpy()
    weight = gamma.double().reshape(-1).numpy()
    normed, reciprocals = np.zeros_like(rows), np.zeros(len(rows))
    for i, row in enumerate(rows):
        total = sum(v * v for v in row)
        reciprocals[i] = 1.0 / np.sqrt(total / len(row) + epsilon)
        normed[i] = [v * reciprocals[i] * w for v, w in zip(row, weight, strict=True)]
    return torch.from_numpy(normed).reshape(x.shape), torch.from_numpy(reciprocals)


def inputs(shape, dtype, gamma_dims=1):
    generator = torch.Generator().manual_seed(len(shape) + shape[0])
    x, y = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    gamma, beta = (
        torch.randn(shape[len(shape) - gamma_dims :], generator=generator).to(dtype)
        for _ in range(2)
    )
    return x, y, gamma, beta


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm(shape, dtype):
    x, _, gamma, _ = inputs(shape, dtype)
    y, rstd = OPS["npu::npu_rms_norm"](x, gamma, 1e-5)
    want, reciprocals = looped(x, gamma, 1e-5)
    torch.testing.assert_close(y.double(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    torch.testing.assert_close(rstd.double().reshape(-1), reciprocals, atol=1e-5, rtol=1e-5)
    assert y.dtype == dtype
    assert rstd.dtype == torch.float32
    assert rstd.shape == (*shape[:-1], 1)


def test_rms_norm_over_two_dimensions():
    x, _, gamma, _ = inputs((4, 3, 5), torch.float32, gamma_dims=2)
    y, rstd = OPS["npu::npu_rms_norm"](x, gamma)
    torch.testing.assert_close(y.double(), looped(x, gamma, 1e-6)[0], atol=1e-5, rtol=1e-5)
    assert rstd.shape == (4, 1, 1)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_beta", [False, True])
def test_add_rms_norm_bias(shape, dtype, with_beta):
    x, residual, gamma, beta = inputs(shape, dtype)
    y, _, total = OPS["_C_ascend::npu_add_rms_norm_bias"](
        x, residual, gamma, beta if with_beta else None, 1e-5
    )
    want, _ = looped((x.double() + residual.double()), gamma, 1e-5)
    want = want + beta.double() if with_beta else want
    torch.testing.assert_close(y.double(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    torch.testing.assert_close(total, x + residual)
    assert total.data_ptr() not in {x.data_ptr(), residual.data_ptr()} or total.numel() == 0


def test_add_rms_norm_without_a_bias_agrees_with_the_one_that_has():
    x, residual, gamma, _ = inputs((6, 9), torch.float32)
    plain = OPS["npu::npu_add_rms_norm"](x, residual, gamma)
    biased = OPS["_C_ascend::npu_add_rms_norm_bias"](x, residual, gamma)
    for a, b in zip(plain, biased, strict=True):
        torch.testing.assert_close(a, b)


def test_bfloat16_norms_the_sum_before_it_is_rounded():
    x = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16)
    residual = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)  # 257 is not a bfloat16
    gamma = torch.ones(2, dtype=torch.bfloat16)
    _, rstd, total = OPS["_C_ascend::npu_add_rms_norm_bias"](x, residual, gamma)
    assert total[0, 0] == 256
    assert rstd.item() == pytest.approx(1 / np.sqrt((257**2 + 1) / 2 + 1e-6), rel=1e-6)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_gemma_rms_norm_adds_one_to_the_weight(dtype):
    x, _, gamma, _ = inputs((3, 7), dtype)
    y, _ = OPS["_C_ascend::npu_gemma_rms_norm"](x, gamma, 1e-6)
    want, _ = looped(x, 1.0 + gamma.double(), 1e-6)
    torch.testing.assert_close(y.double(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_rms_norm_cast_gives_the_rounded_values_in_float32():
    x, _, gamma, _ = inputs((3, 7), torch.bfloat16)
    y, wide = OPS["_C_ascend::npu_rms_norm_cast"](x, gamma)
    assert wide.dtype == torch.float32
    assert torch.equal(wide, y.float())


@pytest.mark.parametrize(
    ("x", "gamma", "reason"),
    [
        (torch.ones(2, 4, dtype=torch.float64), torch.ones(4), "torch.float64"),
        (torch.ones(2, 4), torch.ones(4, dtype=torch.bfloat16), "dtypes differ"),
        (torch.ones(2, 4), torch.ones(3), "gamma has shape"),
        (torch.ones(4), torch.ones(2, 4), "gamma has shape"),
    ],
)
def test_refused(x, gamma, reason):
    with pytest.raises(OpError, match=rf"^npu::npu_rms_norm: .*{reason}"):
        OPS["npu::npu_rms_norm"](x, gamma)


def test_a_residual_of_another_shape_is_refused():
    x = torch.ones(2, 4)
    for name in ("npu::npu_add_rms_norm", "_C_ascend::npu_add_rms_norm_bias"):
        with pytest.raises(OpError, match=f"^{name}: x1 .* differ"):
            OPS[name](x, torch.ones(1, 4), torch.ones(4))
