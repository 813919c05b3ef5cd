"""Drafts are worth as much as on a CPU, also after steps in which the model made none.

What Ascend's users report most is low acceptance, which no comparison of answers sees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.environment import CPU
from tests.ascend.matrix import CASES, MODES, SPECULATIVE, Case, by_day_or_night

DRAFTED = "vllm:spec_decode_num_draft_tokens"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
# The same within rounding, which decides between equal logits.
TOLERANCE = 0.02
COMPARED = {
    name: CASES[name]
    for name in (
        *(f"{method}-{mode}" for method in SPECULATIVE for mode in MODES),
        # In a full graph a hybrid takes the trees' drafts where they are K, and no others.
        "hybrid-eager",
        "hybrid-default",
    )
}
# No drafts before two of six requests have come to the end of their context; the others have ten
# tokens and more to go.
COMPARED["limit"] = Case(
    method="eagle",
    mode="eager",
    engine={"max_model_len": 116},
    options={"disable_by_batch_size": 4},
)


@pytest.mark.parametrize("name", by_day_or_night(COMPARED))
def test_as_many_are_made_and_accepted(name: str, run_engine: Any) -> None:
    """The draft's KV cache has what was written in steps without drafts of the model."""
    case = COMPARED[name]
    plain = replace(case, mode="eager", requests=("greedy",), watched=False)
    here = run_engine(case)["counters_of"]["greedy"]
    there = run_engine(plain, CPU)["counters_of"]["greedy"]
    assert here[DRAFTED] == pytest.approx(there[DRAFTED], rel=TOLERANCE)
    assert here[ACCEPTED] == pytest.approx(there[ACCEPTED], rel=TOLERANCE)
    assert here[ACCEPTED] > 0
