"""Drafts are worth as much as the zoo's record says: no comparison of answers sees worse drafts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from examples.zoo import evaluate
from tests.zoo import ZOO

RECORD: dict[str, Any] = json.loads((ZOO / "evaluation.json").read_text())
# Another processor rounds otherwise, and a drawn token decides all that follow it.
LEAST_SHARE = 0.95


def test_every_way_to_draft_is_in_the_record() -> None:
    assert set(RECORD["results"]) == set(evaluate.DRAFTS)
    assert {name for result in RECORD["results"].values() for name in result} == set(
        evaluate.REQUESTS
    )


# What a penalty does to logits is the verifier's, the same for every draft.
REQUESTS = [
    pytest.param(name, marks=pytest.mark.nightly if "penalty" in name else ())
    for name in evaluate.REQUESTS
]


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("name", evaluate.DRAFTS)
def test_acceptance_has_not_fallen(name: str, request_name: str, make_engine: Any) -> None:
    draft = evaluate.DRAFTS[name]
    llm = make_engine(draft.spec(), model=str(ZOO / draft.target), **evaluate.ENGINE)
    result = evaluate.measure(llm, evaluate.REQUESTS[request_name])
    golden = RECORD["results"][name][request_name]
    gain, expected = (found["tokens_per_step"] - 1 for found in (result, golden))
    assert gain >= LEAST_SHARE * expected, (result, golden)
