"""Drafts are worth as much as the record says: no comparison of answers sees worse drafts."""

from __future__ import annotations

from typing import Any

import pytest

from examples.zoo import evaluate
from tests.e2e.golden import IN_RECORD, RECORD, is_worth_its_record
from tests.e2e.recurrent import NEEDS_LAYERS
from tests.marks import requires_torchvision
from tests.zoo import ONE_OF_EACH_KIND, folder_of


def test_every_way_to_draft_is_in_the_record() -> None:
    assert set(RECORD) == set(evaluate.DRAFTS)
    assert {name for result in RECORD.values() for name in result} == set(evaluate.REQUESTS)


def is_by_day(name: str, request_name: str) -> bool:
    """Tell whether one of the other figures would not fall with this one.

    A draft that is the most likely token is the same whatever the request asks for: how many are
    accepted is then the verifier's to decide, in the same way for every method of a kind. Drawn
    drafts of greedy requests are the most likely ones, too, and the greedy figures of IN_RECORD are
    looked at where the answers are.
    """
    if "penalty" in request_name:
        return False
    is_drawn = "sampled drafts" in name
    if name in OF_OTHER_TARGETS:
        return False
    if request_name == "greedy":
        return not is_drawn and name not in IN_RECORD.values()
    return is_drawn or name in ONE_OF_EACH_KIND


# Answers of these, and that drafts are worth much, are in test_mixtures.py and test_gemma4.py.
OF_OTHER_TARGETS = ("eagle3, gpt-oss", "eagle3, Qwen3-MoE", "mtp, Gemma 4")

# With other versions of vLLM, too: how drafts are picked and verified, not each method's worth.
CORE = {("eagle", "T=0.8"), ("mtp, DeepSeek", "greedy")}
# Where torchvision is, by night, from tests/ascend/test_state_targets.py.
WITH_STATES = "mtp, Qwen3.5"


def marks_of(name: str, request_name: str) -> list[Any]:
    """Return the marks of a figure's test."""
    marks: list[Any] = [] if is_by_day(name, request_name) else [pytest.mark.nightly]
    marks += NEEDS_LAYERS if name == WITH_STATES else []
    if evaluate.DRAFTS[name].target in evaluate.NEED_TORCHVISION:
        marks.append(requires_torchvision)
    return [*marks, pytest.mark.core] if (name, request_name) in CORE else marks


FIGURES = [
    pytest.param(name, request, marks=marks_of(name, request))
    for name, draft in evaluate.DRAFTS.items()
    # The others are tests/ascend's.
    if draft.device == "cpu"
    for request in evaluate.REQUESTS
]


@pytest.mark.parametrize(("name", "request_name"), FIGURES)
def test_acceptance_has_not_fallen(name: str, request_name: str, make_engine: Any) -> None:
    draft = evaluate.DRAFTS[name]
    target = folder_of(draft.target)
    llm = make_engine(draft.spec(target.parent), model=str(target), **evaluate.ENGINE)
    result = evaluate.measure(llm, evaluate.REQUESTS[request_name])
    assert is_worth_its_record(name, request_name, result["tokens_per_step"]), result
