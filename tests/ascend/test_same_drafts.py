"""Drafts are those of a CPU, token for token, also after steps in which the model made none.

What Ascend's users report most is low acceptance, which no comparison of answers sees. A draft
depends on nothing but the text before it, so what a CPU drafts after each text is what is expected
here: with other kernels, other rows and no graphs. Prompts are of very different lengths
(prompts.py), so whatever a request takes of another one's is wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import CPU, IS_SIMULATED
from tests.ascend.matrix import CASES, END, MODES, SPECULATIVE, Case, by_day_or_night
from tests.ascend.processes import assert_same_drafts

# The simulator draws a seed's numbers as a CPU does, so texts are the same there, too.
DRAFTS_OF = ("greedy", "seeded") if IS_SIMULATED else ("greedy",)
COMPARED = {
    name: CASES[name]
    for name in (
        *(f"{method}-{mode}" for method in SPECULATIVE for mode in MODES),
        # In a full graph a hybrid takes the trees' drafts where they are K, and no others.
        "hybrid-eager",
        "eagle-chunked",
        "eagle-eager-tp2",
        "eagle-full_decode_only-tp2",
        "mtp-full_decode_only-tp2",
        *(name for name in CASES if name.endswith("-end")),
    )
}
# No drafts before two of six requests have come to the end of their context; the others have ten
# tokens and more to go.
COMPARED["limit"] = Case(
    method="eagle",
    mode="eager",
    engine={"max_model_len": END},
    options={"disable_by_batch_size": 4},
)


@pytest.mark.parametrize("name", by_day_or_night(COMPARED))
def test_drafts_are_those_of_a_cpu(name: str, run_engine: Any) -> None:
    """The draft's KV cache has what was written in steps without drafts of the model."""
    case = COMPARED[name]
    found, expected = run_engine(case), run_engine(case.for_cpu(), CPU)
    for kind in (kind for kind in DRAFTS_OF if kind in case.requests):
        assert_same_drafts(found, expected, kind)


@pytest.mark.nightly  # by day of either mode without such graphs, above
def test_a_hybrids_drafts_are_the_same_in_either_mode_with_full_graphs(run_engine: Any) -> None:
    """There it takes the trees' drafts where they are K, and no others; a CPU takes fewer, too."""
    found, expected = (run_engine(CASES[f"hybrid-{m}"]) for m in ("default", "full_decode_only"))
    assert_same_drafts(found, expected, "greedy")
