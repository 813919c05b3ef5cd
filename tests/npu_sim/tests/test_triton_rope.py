"""The references of vllm-ascend's rotary embedding kernels against the kernels, interpreted."""

import pytest
import torch

if not hasattr(torch, "npu"):
    pytest.skip("torch_npu is not loaded: run with the simulator", allow_module_level=True)
rope = pytest.importorskip("vllm_ascend.ops.triton.rope", reason="vllm-ascend is not installed")
from npu_sim.references import load_all  # noqa: E402
from npu_sim.triton_bridge import INTERPRET_ALL  # noqa: E402
from vllm_ascend.ops.triton.triton_utils import init_device_properties_triton  # noqa: E402

TABLE = 11


@pytest.fixture(autouse=True)
def cores():
    init_device_properties_triton()


def both(monkeypatch, dtype, arguments, heads=(3, 1), size=16, tokens=5):
    """Rotate the same tensors by the reference and by the interpreter."""
    generator = torch.Generator().manual_seed(tokens)
    shapes = [(tokens, n, size) for n in heads]
    given = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    results = []
    for interpret in ("0", "1"):
        monkeypatch.setenv(INTERPRET_ALL, interpret)
        query, key = (tensor.npu() for tensor in given)
        out = rope.rope_forward_triton(query, key, **arguments)
        results.append([tensor.cpu() for tensor in out])
    for original, tensor in zip(given, results[0], strict=True):
        assert not torch.equal(original, tensor)
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize(("size", "rope_dim"), [(16, 16), (24, 12)])
def test_by_positions(monkeypatch, dtype, neox, size, rope_dim):
    arguments = {
        "cos_sin_cache": torch.randn(TABLE, rope_dim).to(dtype).npu(),
        "positions": torch.tensor([10, 0, 3, 3, 7]).npu(),
        "rope_dim": rope_dim,
        "is_neox_style": neox,
    }
    fast, interpreted = both(monkeypatch, dtype, arguments, size=size)
    # The interpreter cuts bfloat16 off where a device rounds: one unit in the last place.
    tolerance = 0 if dtype == torch.float32 else 2**-7
    for a, b in zip(fast, interpreted, strict=True):
        torch.testing.assert_close(a, b, atol=0, rtol=tolerance)


@pytest.mark.parametrize("neox", [True, False])
def test_by_given_cosines(monkeypatch, neox):
    arguments = {
        "cos": torch.randn(5, 8).npu(),
        "sin": torch.randn(5, 8).npu(),
        "is_neox_style": neox,
    }
    fast, interpreted = both(monkeypatch, torch.float32, arguments)
    for a, b in zip(fast, interpreted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("by_position", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_tensor(monkeypatch, dtype, by_position, neox):
    """Of the given cosines, which are twice the dimensions here, the first half counts."""
    if by_position:
        arguments = {
            "cos_sin_cache": torch.randn(TABLE, 8).to(dtype).npu(),
            "positions": torch.tensor([10, 0, 3, 3, 7]).npu(),
        }
    else:
        arguments = {name: torch.randn(5, 8).to(dtype).npu() for name in ("cos", "sin")}
    given = torch.randn(5, 3, 16, generator=torch.Generator().manual_seed(5)).to(dtype)
    results = []
    for interpret in ("0", "1"):
        monkeypatch.setenv(INTERPRET_ALL, interpret)
        out = rope.rope_forward_triton_siso(
            given.npu(), rope_dim=8, is_neox_style=neox, **arguments
        )
        results.append(out.cpu())
    assert not torch.equal(given, results[0])
    tolerance = 0 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(*results, atol=0, rtol=tolerance)


@pytest.mark.parametrize("name", ["_triton_rope", "_triton_rope_siso"])
def test_the_kernels_have_the_parameters_of_the_references(name):
    import inspect

    reference = inspect.signature(load_all()[f"triton::{name}"].__wrapped__)
    assert list(reference.parameters) == getattr(rope, name).arg_names
