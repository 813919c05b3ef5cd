"""RMS norms by vLLM's C++ kernels, where nothing is compiled on a CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import ir
from vllm.config.compilation import CompilationMode

from vllm_ascend_spec.platform.cpu import SpecCpuPlatform
from vllm_ascend_spec.platform.cpu_norm import PROVIDER

SpecCpuPlatform.import_ir_kernels()
PLAIN, ADDED = ir.ops.rms_norm, ir.ops.fused_add_rms_norm
TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(1, 8), (3, 256), (2, 5, 64), (0, 64), (129, 4096)], ids=str)
def test_the_kernels_do_what_the_operators_say(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, residual, weight = (random(*s, dtype=dtype) for s in (shape, shape, shape[-1:]))
    alike: Any = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    expected = PLAIN.impls["native"].impl_fn(x, weight, 1e-5)
    assert PLAIN.impls[PROVIDER].supported
    assert PLAIN.impls[PROVIDER].supports_args(x, weight, 1e-5)
    torch.testing.assert_close(PLAIN.impls[PROVIDER].impl_fn(x, weight, 1e-5), expected, **alike)
    expected = ADDED.impls["native"].impl_fn(x, residual, weight, 1e-5)
    assert ADDED.impls[PROVIDER].supports_args(x, residual, weight, 1e-5)
    before = x.clone(), residual.clone()
    for found in (
        ADDED.impls[PROVIDER].func_impl_fn(x, residual, weight, 1e-5),
        ADDED.impls[PROVIDER].impl_fn(x, residual, weight, 1e-5),
    ):
        torch.testing.assert_close(found, expected, **alike)
        # A model may hand its residual out as a hidden state: nobody may write to it.
        torch.testing.assert_close((x, residual), before, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_a_row_does_not_depend_on_the_others(rows: int) -> None:
    """Else the target would say something else with drafts than without."""
    x, weight = random(rows, 256), random(256)
    norm = PLAIN.impls[PROVIDER].impl_fn
    assert torch.equal(norm(x, weight, 1e-5)[-1:], norm(x[-1:].clone(), weight, 1e-5))


def test_other_arguments_go_to_the_operators_of_pytorch() -> None:
    x, weight = random(4, 64), random(64)
    fits = PLAIN.impls[PROVIDER].supports_args
    assert not fits(x.t().contiguous().t(), weight, 1e-5), "strides"
    assert not fits(random(4, 12), random(12), 1e-5), "the kernel takes eight elements at a time"
    assert not fits(x, weight.half(), 1e-5), "two types"
    assert not fits(x, None, 1e-5), "no weight"
    assert not fits(x, weight, 1e-5, 32), "a part of the row"
    fits = ADDED.impls[PROVIDER].supports_args
    assert not fits(x, random(64, 4).t(), weight, 1e-5), "strides of the residual"
    assert not fits(x, x.half(), weight, 1e-5), "two types"


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        (CompilationMode.NONE, PROVIDER),
        (CompilationMode.DYNAMO_TRACE_ONCE, "native"),
        (CompilationMode.VLLM_COMPILE, "native"),
    ],
    ids=str,
)
def test_they_are_preferred_where_nothing_is_compiled(mode: CompilationMode, first: str) -> None:
    config: Any = SimpleNamespace(compilation_config=SimpleNamespace(mode=mode))
    found = SpecCpuPlatform.get_default_ir_op_priority(config)
    assert found.rms_norm[0] == found.fused_add_rms_norm[0] == first
    assert found.rms_norm[-1] == "native"
