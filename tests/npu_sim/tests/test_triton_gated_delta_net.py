"""The references of the small kernels of Gated DeltaNet layers against them, interpreted."""

import inspect

import pytest
import torch

if not hasattr(torch, "npu"):
    pytest.skip("torch_npu is not loaded: run with the simulator", allow_module_level=True)
norm = pytest.importorskip(
    "vllm_ascend.ops.triton.layernorm_gated", reason="vllm-ascend has no such kernel"
)
gating = pytest.importorskip(
    "vllm_ascend.ops.triton.fused_gdn_gating", reason="vllm-ascend has no such kernel"
)
l2norm = pytest.importorskip(
    "vllm.third_party.flash_linear_attention.ops.l2norm", reason="vLLM has no such kernel"
)
from npu_sim.references import load_all  # noqa: E402
from npu_sim.triton_bridge import INTERPRET_ALL  # noqa: E402
from vllm_ascend.ops.triton.triton_utils import init_device_properties_triton  # noqa: E402

KERNELS = {
    "l2norm_fwd_kernel2": l2norm.l2norm_fwd_kernel2,
    "fused_gdn_gating_kernel": gating.fused_gdn_gating_kernel,
    "_layer_norm_fwd_1pass_kernel_npu": norm._layer_norm_fwd_1pass_kernel_npu,
}
# Sums in another order; the interpreter cuts bfloat16 off where a device rounds.
TOLERANCES = {torch.float32: 1e-6, torch.bfloat16: 2**-7}
DTYPES = list(TOLERANCES)


@pytest.fixture(autouse=True)
def cores():
    init_device_properties_triton()


def assert_same_by_both(monkeypatch, dtype, run):
    """Compare what the references give with what the interpreter does."""
    found = []
    for interpret in ("0", "1"):
        monkeypatch.setenv(INTERPRET_ALL, interpret)
        found.append([tensor.cpu() for tensor in run() if tensor is not None])
    for fast, interpreted in zip(*found, strict=True):
        assert fast.dtype == interpreted.dtype
        assert fast.count_nonzero() > 0
        torch.testing.assert_close(fast, interpreted, atol=1e-6, rtol=TOLERANCES[dtype])


def numbers(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).npu()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 37])
def test_rows_of_length_one(monkeypatch, dtype, rows):
    x = numbers(rows, 2, 24, dtype=dtype)
    assert_same_by_both(monkeypatch, dtype, lambda: [l2norm.l2norm_fwd(x)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "heads"), [(1, 4), (70, 11)])
def test_gates(monkeypatch, dtype, tokens, heads):
    """Some are so large that their softplus is themselves."""
    a, b = (numbers(tokens, heads, dtype=dtype, seed=seed) for seed in (1, 2))
    given = numbers(heads, seed=3), a * 20, b, numbers(heads, dtype=dtype, seed=4)
    assert_same_by_both(monkeypatch, dtype, lambda: gating.fused_gdn_gating_patch(*given))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_rms", [True, False])
@pytest.mark.parametrize("gated", ["before", "after", "never"])
@pytest.mark.parametrize("group_size", [None, 12])
def test_norms(monkeypatch, dtype, is_rms, gated, group_size):
    """With gaps between the rows, more of them than a program takes, and a bias without RMS."""
    x, z = (numbers(67, 30, dtype=dtype, seed=seed)[:, :24] for seed in (5, 6))
    weight, bias = (numbers(24, dtype=dtype, seed=seed) for seed in (7, 8))
    options = {"group_size": group_size, "norm_before_gate": gated != "before"}
    given = x, weight, None if is_rms else bias, 1e-5, None if gated == "never" else z
    assert_same_by_both(
        monkeypatch,
        dtype,
        lambda: norm.layer_norm_fwd_npu(*given, is_rms_norm=is_rms, **options),
    )


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_have_the_parameters_of_the_references(name):
    reference = inspect.signature(load_all()[f"triton::{name}"].__wrapped__)
    assert list(reference.parameters) == KERNELS[name].arg_names
