"""A draft model with a shorter context than its target's, on the simulated NPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import CASES, Case
from tests.ascend.processes import tokens_of
from tests.engines import assert_same

# Some of the prompts are longer, and all of the answers go beyond it.
CONTEXT = 96


@pytest.mark.parametrize(
    ("method", "mode"),
    [
        ("eagle", "eager"),
        pytest.param("eagle", "full_decode_only", marks=pytest.mark.nightly),
        pytest.param("draft_model", "eager", marks=pytest.mark.nightly),
        pytest.param("dflash", "eager", marks=pytest.mark.nightly),
        pytest.param("dspark", "eager", marks=pytest.mark.nightly),
    ],
)
def test_longer_requests_go_on_without_drafts(
    method: str, mode: str, run_engine: Any, on_cpu: Any
) -> None:
    limited = Case(method=method, mode=mode, options={"max_model_len": CONTEXT})
    whole = CASES[f"{method}-{mode}"]
    expected = tokens_of(on_cpu, "greedy")
    outcome = run_engine(limited)
    assert_same(tokens_of(outcome, "greedy"), expected)
    drafts, accepted = (f"vllm:spec_decode_num_{name}_tokens" for name in ("draft", "accepted"))
    found, more = (run_engine(case)["counters_of"]["greedy"] for case in (limited, whole))
    assert 0 < found[accepted] < more[accepted]
    if mode == "eager":  # full graphs have all rows
        assert found[drafts] < 0.5 * more[drafts]


@pytest.mark.parametrize("is_async", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_long_request_stops_nobody(is_async: bool, run_engine: Any) -> None:
    """Beside longer requests the others have the drafts that they have alone."""
    case = Case(
        method="eagle",
        mode="eager",
        engine={"async_scheduling": is_async},
        requests=("greedy", "alone"),
        options={"max_model_len": CONTEXT},
    )
    found = run_engine(case)
    assert_same(tokens_of(found, "greedy"), tokens_of(found, "alone"))
    together, alone = (found["counters_of"][kind] for kind in ("greedy", "alone"))
    drafts, accepted = (f"vllm:spec_decode_num_{name}_tokens" for name in ("draft", "accepted"))
    assert alone[accepted] > 0
    if not is_async:
        assert together == alone
        return
    # Drafts made ahead attend to what the host takes for accepted, so a few are others.
    for name in (drafts, accepted):
        assert together[name] == pytest.approx(alone[name], rel=0.15)
