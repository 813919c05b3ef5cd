"""vLLM's own rejection sampler on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from tests.verification.requests import (
    VOCAB,
    Request,
    sampling_metadata,
    spec_metadata,
    tokens_of,
)
from vllm_ascend_spec.patches import cpu_expand_kernel
from vllm_ascend_spec.patches import cpu_rejection_kernels as patch

pytestmark = requires_cpu_build


@pytest.fixture(autouse=True)
def _no_compilation() -> Iterator[None]:
    """Draw bonus tokens with vLLM's code as it is written; compiling it takes seconds."""
    with torch.compiler.set_stance("force_eager"):
        yield


def verify(temperature: float) -> list[list[int]]:
    """Run the stock sampler on two requests whose target always says 5, then 6, then 7."""
    params = SamplingParams(temperature=temperature)
    requests = [Request(params, [1], [2], [5, 6]), Request(params, [1], [2], [5, 4])]
    logits = torch.full((6, VOCAB), -50.0)
    logits[torch.arange(6), torch.tensor([5, 6, 7, 5, 6, 7])] = 50.0
    output = RejectionSampler(Sampler())(
        spec_metadata(requests), None, logits, sampling_metadata(requests, custom=())
    )
    return tokens_of(output.sampled_token_ids)


def test_stock_fault_and_patch_for_greedy_requests(take_out: TakeOut) -> None:
    take_out(patch)
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters"):
        verify(0.0)
    patch.apply()
    assert verify(0.0) == [[5, 6, 7], [5, 6]]


def test_stock_fault_and_patch_for_sampled_requests(take_out: TakeOut) -> None:
    take_out(patch)
    take_out(cpu_expand_kernel)
    cpu_expand_kernel.apply()
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters"):
        verify(1.0)
    patch.apply()
    assert verify(1.0) == [[5, 6, 7], [5, 6]]


def test_reverting_brings_the_fault_back(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    verify(0.0)
    patch.revert()
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters"):
        verify(0.0)
