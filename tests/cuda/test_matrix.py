"""Every method in every mode answers as the same GPU does without speculation, in float32.

    python -m pytest tests/cuda

The reference is an engine without speculation on the same GPU, eager. Of the requests, those with
a seed are compared with the same engine started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.matrix import CHOICES, EXACT, Case
from tests.cuda.gpu import ON_CPU, TRIED, requires_gpu
from tests.cuda.matrix import CASES, EAGER, without_speculation
from tests.engines import assert_same

pytestmark = [requires_gpu, pytest.mark.cuda, pytest.mark.timeout(1800)]
# A CPU has no graphs; to try the tests themselves the eager ones do.
NAMES = [name for name, case in CASES.items() if not ON_CPU or case.mode == EAGER]


@pytest.mark.parametrize("name", NAMES)
def test_greedy_answers_are_those_without_speculation(name: str, run_engine: Any) -> None:
    case = CASES[name]
    outcome = run_engine(case, TRIED.environment)
    assert outcome["platform"] == TRIED.platform
    reference = run_engine(reference_of(case), TRIED.environment)
    for kind in [kind for kind in case.requests if kind in EXACT and kind != "structured"]:
        assert_same(tokens(outcome["answers"][kind]), tokens(reference["answers"][kind]))
    if "structured" in case.requests:
        assert {answer["text"] for answer in outcome["answers"]["structured"]} <= set(CHOICES)
    assert_drafts(outcome["counters"])
    if "preemption" in name:
        assert outcome["counters"]["vllm:num_preemptions"] > 0


@pytest.mark.parametrize("name", [name for name in NAMES if "seeded" in CASES[name].requests])
def test_seeds_repeat(name: str, run_engine: Any) -> None:
    """In two engines; a greedy answer would repeat, too."""
    case = replace(CASES[name], requests=("greedy", "seeded"))
    first, second = (run_engine(case, TRIED.environment, turn=turn)["answers"] for turn in (1, 2))
    assert tokens(first["seeded"]) == tokens(second["seeded"])
    assert tokens(first["seeded"]) != tokens(first["greedy"])


def reference_of(case: Case) -> Case:
    """Return the engine without speculation, with the same end of the context."""
    length = {k: v for k, v in case.engine.items() if k == "max_model_len"}
    plain = without_speculation()
    return replace(plain, engine={**plain.engine, **length})


def tokens(answers: list[dict[str, Any]]) -> list[list[int]]:
    return [answer["tokens"] for answer in answers]


def assert_drafts(counters: Mapping[str, float]) -> None:
    """An engine that never drafts, or accepts nothing, would answer rightly, too."""
    drafted = counters["vllm:spec_decode_num_draft_tokens"]
    assert 0.1 * drafted < counters["vllm:spec_decode_num_accepted_tokens"] < drafted
