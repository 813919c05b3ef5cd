"""Every method in every mode answers as a CPU does without speculation, token for token."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import CASES, CHOICES, EXACT, Case, by_day_or_night
from tests.engines import assert_same

NPU_PLATFORM = "SpecNpuPlatform"
# With two processes and graphs a case takes a minute or two on two cores.
pytestmark = pytest.mark.timeout(900)


def tokens(answers: list[dict[str, Any]]) -> list[list[int]]:
    return [answer["tokens"] for answer in answers]


@pytest.mark.parametrize("name", by_day_or_night(CASES))
def test_answers(name: str, run_engine: Any, on_cpu: Any) -> None:
    case = CASES[name]
    outcome = run_engine(case)
    assert outcome["platform"] == NPU_PLATFORM
    answers = outcome["answers"]
    for kind in [kind for kind in case.requests if kind in EXACT]:
        expected = tokens(on_cpu["answers"][kind])
        if "max_model_len" in case.engine:
            lengths = [len(answer) for answer in tokens(answers[kind])]
            assert min(lengths) < max(lengths), "no request came to the end of the context"
            expected = [e[:length] for e, length in zip(expected, lengths, strict=True)]
        assert_same(tokens(answers[kind]), expected)
    if "structured" in answers:
        assert {answer["text"] for answer in answers["structured"]} <= set(CHOICES)
    if "thinking_budget" in answers and "thinking_budget" in EXACT:
        assert tokens(answers["thinking_budget"]) != tokens(answers["greedy"])
    if "logprobs" in answers:
        assert_close(answers["logprobs"], on_cpu["answers"]["logprobs"])
    if "seeded" in answers:
        assert tokens(answers["seeded"]) != tokens(answers["greedy"])
    if "seeded_in_twos" in answers:
        # A seed repeats whatever runs beside it.
        assert_same(tokens(answers["seeded_in_twos"]), tokens(answers["seeded"]))
    # Medusa's heads guess from one state: 52 of 693 of these prompts, on a CPU, too.
    assert_some_drafts_are_accepted(
        outcome["counters"], least=0.05 if case.method == "medusa" else 0.1
    )
    if "preemption" in name:
        assert outcome["counters"]["vllm:num_preemptions"] > 0


def assert_some_drafts_are_accepted(counters: dict[str, float], least: float = 0.1) -> None:
    """An engine that never drafts, or accepts nothing, would answer rightly, too."""
    drafted = counters["vllm:spec_decode_num_draft_tokens"]
    assert least * drafted < counters["vllm:spec_decode_num_accepted_tokens"] < drafted


def assert_close(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        for place, wanted in zip(ours["logprobs"], theirs["logprobs"], strict=True):
            assert place == pytest.approx(wanted, abs=1e-3)


def test_without_speculation(run_engine: Any, on_cpu: Any) -> None:
    """vllm-ascend's own runner with our sampling of requests with a seed."""
    answers = run_engine(Case(method=None, mode="full_decode_only", requests=("greedy", "seeded")))
    for kind in ("greedy", "seeded"):
        assert_same(tokens(answers["answers"][kind]), tokens(on_cpu["answers"][kind]))
