"""A target whose layers keep a state (Qwen3.5), with drafts that are rejected at every place.

After a rejection the state has to be that of the last accepted token, whatever comes next: a step
with fewer drafts or none, another batch, another part of the prefix cache. The reference is the
same model on the CPU of this environment, without speculation; tests/e2e/test_state_targets.py
holds that to transformers.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import CPU_HERE, IS_SIMULATED, NPU
from tests.ascend.matrix import KINDS, MODES, Case, K, capture_sizes
from tests.ascend.processes import (
    ACCEPTED,
    DRAFTED,
    Outcome,
    Run,
    assert_same_drafts,
    tokens_of,
)
from tests.ascend.prompts import NUM_PROMPTS, prompts
from tests.ascend.targets.states import NIGHTLY_STATE_CASES, QWEN35, STATE_CASES, state_case
from tests.ascend.test_changing_k import SCHEDULE
from tests.ascend.test_matrix import (
    NPU_PLATFORM,
    assert_close,
    assert_some_drafts_are_accepted,
)
from tests.engines import assert_same

TOLERANCE = 0.02
# Rejected drafts, requests in small steps and blocks of states: what each patch is for.
WITHOUT: dict[str, tuple[Case, str]] = {
    "npu_partial_rotary": (STATE_CASES["mtp-eager"], "expanded size of the tensor"),
    "npu_state_table": (STATE_CASES["custom_class-eager"], "ssm_state_indices has shape"),
    "npu_accepted_states": (
        STATE_CASES["custom_class-eager"],
        "num_accepted_tokens is . where a request has . tokens|an answer is another one",
    ),
    "npu_accepted_counts": (STATE_CASES["mtp-eager"], "answers that differ"),
}
HITS = "vllm:prefix_cache_hits"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def expected(run_engine: Run) -> Outcome:
    """What the CPU answers without speculation."""
    case = Case(
        method=None,
        mode="eager",
        engine={"model": QWEN35},
        requests=("greedy", "crowd", "logprobs"),
    )
    return run_engine(case, CPU_HERE)


@pytest.fixture(scope="session")
def scripted(expected: Outcome) -> list[list[int]]:
    """Prompts and answers, as token ids."""
    from transformers import AutoTokenizer

    encode = AutoTokenizer.from_pretrained(QWEN35).encode
    return [
        encode(text) + answer
        for kind in ("greedy", "crowd")
        for text, answer in zip(
            prompts(KINDS[kind].get("prompts", NUM_PROMPTS)),
            tokens_of(expected, kind),
            strict=True,
        )
    ]


def job_of(case: Case, scripted: list[list[int]]) -> dict[str, Any]:
    """Return what an engine is told besides its case."""
    return {"scripted": scripted} if case.method == "custom_class" else {}


def by_day_or_night() -> list[Any]:
    """Return tests' parameters of all cases."""
    return [
        pytest.param(name, marks=pytest.mark.nightly if name in NIGHTLY_STATE_CASES else ())
        for name in STATE_CASES
    ]


@pytest.mark.parametrize("name", by_day_or_night())
def test_answers_are_those_of_no_speculation(
    name: str, run_engine: Run, expected: Outcome, scripted: list[list[int]]
) -> None:
    case = STATE_CASES[name]
    outcome = run_engine(case, NPU, **job_of(case, scripted))
    assert outcome["platform"] == NPU_PLATFORM
    for kind in {"greedy", "crowd"} & set(case.requests):
        assert_same(tokens_of(outcome, kind), tokens_of(expected, kind))
    if "logprobs" in case.requests:
        assert_same(tokens_of(outcome, "logprobs"), tokens_of(expected, "logprobs"))
        assert_close(outcome["answers"]["logprobs"], expected["answers"]["logprobs"])
    if "seeded" in case.requests:
        assert_same(tokens_of(outcome, "seeded_in_twos"), tokens_of(outcome, "seeded"))
        assert tokens_of(outcome, "seeded") != tokens_of(outcome, "greedy")
    assert_some_drafts_are_accepted(outcome["counters"])
    caches = case.engine.get("enable_prefix_caching", True)
    assert (outcome["counters"][HITS] > 0) == caches


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
def test_answers_without_speculation_are_a_cpus(
    mode: str, run_engine: Run, expected: Outcome
) -> None:
    case = Case(
        method=None,
        mode=mode,
        engine={"model": QWEN35},
        requests=("greedy", "logprobs"),
    )
    outcome = run_engine(case)
    for kind in case.requests:
        assert_same(tokens_of(outcome, kind), tokens_of(expected, kind))
    assert_close(outcome["answers"]["logprobs"], expected["answers"]["logprobs"])


@pytest.mark.parametrize("mode", ["eager", "full_decode_only"])
def test_drafts_are_those_of_a_cpu(mode: str, run_engine: Run) -> None:
    case = STATE_CASES[f"mtp-{mode}"]
    found, wanted = run_engine(case), run_engine(case.for_cpu(), CPU_HERE)
    assert_same_drafts(found, wanted, "greedy")


def test_as_many_drafts_are_accepted_as_on_a_cpu(run_engine: Run) -> None:
    """With asynchronous scheduling, too, where drafts stay on the device."""
    case = STATE_CASES["mtp-default"]
    here = run_engine(case)["counters_of"]["greedy"]
    there = run_engine(case.for_cpu(), CPU_HERE)["counters_of"]["greedy"]
    assert here[DRAFTED] == pytest.approx(there[DRAFTED], rel=TOLERANCE)
    assert here[ACCEPTED] == pytest.approx(there[ACCEPTED], rel=TOLERANCE)


def test_later_draft_steps_run_on_one_row_per_request(run_engine: Run) -> None:
    eager, full = (run_engine(STATE_CASES[f"mtp-{m}"]) for m in ("eager", "full_decode_only"))
    later = [rows[1:] for rows in eager["draft_rows_of"]["greedy"]]
    assert later
    for *steps, num_reqs in later:
        assert steps == [num_reqs] * (K - 1)
    recorded = {rows[0]: rows[1:-1] for rows in full["draft_rows_at_start"] if len(rows) > 2}
    for size in capture_sizes(K):
        assert recorded[size] == [size // (K + 1)] * (K - 1)


@pytest.mark.nightly
@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("mode", ["eager", "full_decode_only"])
def test_preemption(mode: str, caches: bool, run_engine: Run) -> None:
    """All requests fit, until one grows into another block of keys and values."""
    room = {"model": QWEN35, "max_model_len": 1024}
    engine = {**room, "enable_prefix_caching": caches, "num_gpu_blocks_override": 56}
    outcome = run_engine(state_case("mtp", mode, engine=engine, requests=("long",)))
    reference = Case(method=None, mode="eager", engine=room, requests=("long",))
    wanted = run_engine(reference, CPU_HERE)
    assert_same(tokens_of(outcome, "long"), tokens_of(wanted, "long"))
    assert outcome["counters"]["vllm:num_preemptions"] > 0


@pytest.mark.nightly
def test_k_changes_from_step_to_step(run_engine: Run, expected: Outcome) -> None:
    """In graphs for each K, and after steps with more drafts than the next one has rows."""
    case = state_case(
        "mtp",
        "default",
        engine={
            "additional_config": {},
            "compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"},
        },
        requests=("crowd", "greedy"),
        options=SCHEDULE,
    )
    outcome = run_engine(case)
    for kind in case.requests:
        assert_same(tokens_of(outcome, kind), tokens_of(expected, kind))
    assert sum(n > 0 for n in outcome["lengths"].values()) == K
    assert outcome["graph_steps_of"]["crowd"]["full"] > 0


@pytest.mark.skipif(not IS_SIMULATED, reason="on silicon nobody needs engines with errors")
@pytest.mark.nightly
@pytest.mark.parametrize("patch", WITHOUT)
def test_without_a_patch_vllm_ascends_fault_shows(
    patch: str, run_engine: Run, expected: Outcome, scripted: list[list[int]]
) -> None:
    case, said = WITHOUT[patch]

    def compare() -> None:
        outcome = run_engine(case, NPU, **job_of(case, scripted), without=[patch])
        for kind in {"greedy", "crowd"} & set(case.requests):
            assert_same(tokens_of(outcome, kind), tokens_of(expected, kind))

    with pytest.raises((AssertionError, pytest.fail.Exception), match=f"(?s){said}"):
        compare()
