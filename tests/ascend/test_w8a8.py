"""One quantized checkpoint, one command line: vllm-ascend's own W8A8 answers as ours on a CPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import CPU
from tests.ascend.matrix import Case
from tests.ascend.processes import tokens_of
from tests.engines import assert_same
from tests.zoo import W8A8

# vllm-ascend takes no float32 model. In bfloat16 another order of sums may turn a near tie over.
QUANTIZED = {"model": W8A8, "quantization": "ascend", "dtype": "bfloat16"}
NEAR = 0.15
KIND = "top_two"


def assert_same_but_for_ties(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Answers may part where the second best token is as good, to two places or so; not at once."""
    same = total = 0
    for ours, theirs in zip(found, expected, strict=True):
        pairs = zip(ours["tokens"], theirs["tokens"], strict=True)
        place = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        total += len(theirs["tokens"])
        same += len(theirs["tokens"]) if place is None else place
        if place is not None:
            best = theirs["logprobs"][place]
            token, wanted = str(ours["tokens"][place]), str(theirs["tokens"][place])
            assert token in best, (place, token, best)
            assert best[wanted] - best[token] < NEAR, (place, best)
    assert same > total / 2


# Graphs replay the same ops of quantized layers; by day test_matrix.py has the graphs.
@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("full_decode_only", marks=pytest.mark.nightly)]
)
def test_answers(mode: str, run_engine: Any) -> None:
    engine = {"requests": (KIND,), "engine": QUANTIZED}
    outcome = run_engine(Case(method="eagle", mode=mode, **engine))
    plain = run_engine(Case(method=None, mode="eager", **engine), CPU)
    assert_same_but_for_ties(outcome["answers"][KIND], plain["answers"][KIND])
    counters = outcome["counters"]
    assert counters["vllm:spec_decode_num_accepted_tokens"] > 0


def test_speculation_changes_no_answer(run_engine: Any) -> None:
    engine = {"mode": "eager", "requests": (KIND,), "engine": QUANTIZED}
    speculating = run_engine(Case(method="eagle", **engine))
    plain = run_engine(Case(method=None, **engine))
    assert_same(tokens_of(speculating, KIND), tokens_of(plain, KIND))
