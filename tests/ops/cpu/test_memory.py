"""A call allocates no tensor but its results; what C++ itself holds is in test_sources.py."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.ops.batches import DTYPES, RULES, Arguments
from tests.ops.cases import FILTERS, parity_cases
from tests.ops.cpu.marks import requires_library
from tests.ops.cpu.run_cases import GREEDY_ARGUMENTS
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample

VOCAB = 151936
ROW = 4 * VOCAB

pytestmark = requires_library


def allocations(case: Arguments, backend: str) -> list[int]:
    """Return the sizes in bytes of all tensors that calls of all ops allocate."""
    words = torch.full((1, VOCAB // 32), -1, dtype=torch.int32)
    first = torch.zeros(1, dtype=torch.int32)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        verify_greedy(*(case[name] for name in GREEDY_ARGUMENTS), backend=backend)
        verify_sample(**case, backend=backend)
        grammar_mask(case["logits"], words, first, backend=backend)
    events = profiler.profiler.kineto_results.events()
    return [event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > 0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_of_the_size_of_a_row_is_allocated(rule: str, dtype: torch.dtype) -> None:
    (case,) = parity_cases(
        1, seed=51, vocab_size=VOCAB, max_requests=8, rule=rule, drafts="near", filters=FILTERS,
        dtype=dtype,
    )  # fmt: skip
    sizes = allocations(case, "cpu")
    num_reqs, width = case["cu_num_draft_tokens"].shape[0], case["max_draft_len"] + 1
    results = [4 * num_reqs * width, 4 * num_reqs] * 2  # of both verification ops
    # Values of more than 32 requests or drafts are checked by tensor operations.
    assert sum(sizes) - sum(results) <= 256
    assert max(allocations(case, "reference")) > ROW  # such an allocation would be seen
