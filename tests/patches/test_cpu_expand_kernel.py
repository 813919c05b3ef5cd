"""``expand_batch_to_tokens`` on a CPU."""

from __future__ import annotations

import pytest
import torch
from vllm.platforms import current_platform
from vllm.utils import cpu_triton_utils
from vllm.v1.sample import rejection_sampler

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_expand_kernel as patch
from vllm_ascend_spec.upstream.ranges import vllm_is

pytestmark = requires_cpu_build

VALUES = {
    torch.float32: [0.0, 0.7, 1.5],
    torch.int32: [0, 40, 7],
    torch.int64: [0, 40, 7],
}


def expand(dtype: torch.dtype) -> list[float]:
    return rejection_sampler.expand_batch_to_tokens(
        torch.tensor(VALUES[dtype], dtype=dtype),
        torch.tensor([2, 2, 5], dtype=torch.int32),
        5,
        replace_from=0,
        replace_to=1,
    ).tolist()


def is_right(dtype: torch.dtype) -> bool:
    last = torch.tensor(VALUES[dtype], dtype=dtype)[2].item()
    return expand(dtype) == [1, 1, last, last, last]


@pytest.mark.parametrize("dtype", VALUES)
def test_stock_fault_and_patch(take_out: TakeOut, dtype: torch.dtype) -> None:
    take_out(patch)
    if vllm_is("<0.31"):
        with pytest.raises(TypeError):
            expand(dtype)
    elif dtype != torch.int64:
        current_platform.register_triton_kernel_overrides()  # as a worker does
        assert not is_right(dtype)
    patch.apply()
    assert is_right(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_vllms_own_fall_back_leaves_the_output_as_it_was(dtype: torch.dtype) -> None:
    # Why the patch brings a kernel of its own and does not only plug in vLLM's.
    output = torch.full((5,), -3, dtype=dtype)
    cpu_triton_utils._expand_kernel_impl(
        output, torch.tensor(VALUES[dtype], dtype=dtype), torch.tensor([2, 2, 5]), 0, 1
    )
    assert (output == -3).all()


def test_requests_without_tokens_at_either_end() -> None:
    output = torch.empty(2)
    patch.expand(output, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 2, 2]).int(), 0, 1)
    assert output.tolist() == [2.0, 2.0]


def test_reverting_brings_the_stock_kernel_back(take_out: TakeOut) -> None:
    take_out(patch)
    stock = rejection_sampler._expand.kernel
    patch.apply()
    assert rejection_sampler._expand.kernel is not stock
    patch.revert()
    assert rejection_sampler._expand.kernel is stock
