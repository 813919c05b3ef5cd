"""Drafts are worth as much as on a CPU, also after steps in which the model made none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import CPU
from tests.ascend.matrix import CASES, Case

SPECULATIVE = {
    "hybrid": CASES["hybrid-eager"],
    "suffix": CASES["suffix-eager"],
    # No drafts before two of six requests have come to the end of their context; the others have
    # ten tokens and more to go.
    "limit": Case(
        method="eagle",
        mode="eager",
        engine={"max_model_len": 116},
        options={"disable_by_batch_size": 4},
    ),
}


@pytest.mark.parametrize("name", SPECULATIVE)
def test_as_many_are_made_and_accepted(name: str, run_engine: Any) -> None:
    """The draft's KV cache has what was written in steps without drafts of the model."""
    here, there = (
        run_engine(SPECULATIVE[name], *where)["counters_of"]["greedy"] for where in ((), (CPU,))
    )
    assert here == there
    assert here["vllm:spec_decode_num_accepted_tokens"] > 0
