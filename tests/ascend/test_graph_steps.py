"""Which steps replay a graph on the simulated NPU, which do not, and that it is said why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import Case
from tests.ascend.processes import Outcome, tokens_of
from tests.engines import assert_same
from vllm_ascend_spec.step_report import OTHER_K, PROMPTS, UNEVEN, WIDE

MODE = {"cudagraph_mode": "FULL_DECODE_ONLY"}
# What every engine does with prompts in this mode.
READS_PROMPTS = f"none {PROMPTS}"
STOCK = {"capture": "stock"}
# What answers are compared with, here and in test_changing_k.py.
PLAIN = Case(method=None, mode="eager", requests=("crowd",))


def case(
    method: str,
    max_num_seqs: int,
    section: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **compilation: Any,
) -> Case:
    """Return an engine whose batches have every size up to ``max_num_seqs``."""
    engine = {
        "max_num_seqs": max_num_seqs,
        "compilation_config": {**MODE, **compilation},
        "additional_config": {"ascend_spec": section} if section else {},
    }
    return Case(
        method=method, mode="default", engine=engine, requests=("crowd",), options=options or {}
    )


def misses(outcome: Outcome) -> dict[str, int]:
    """Return how many decode steps had no graph, by reason."""
    steps = outcome["graph_steps_of"]["crowd"]
    return {k: n for k, n in steps.items() if k.startswith("none") and k != READS_PROMPTS and n}


# Plans of all sizes are looked at by tests/graphs/test_planner.py; batches of up to 8 are by day in
# test_changing_k.py.
@pytest.mark.parametrize(
    "max_num_seqs", [*(pytest.param(n, marks=pytest.mark.nightly) for n in (8, 12)), 20]
)
def test_every_decode_step_replays_a_planned_graph(max_num_seqs: int, run_engine: Any) -> None:
    ours = run_engine(case("eagle", max_num_seqs))
    assert misses(ours) == {}
    assert ours["graph_steps_of"]["crowd"]["full"] >= 5
    assert_same(tokens_of(ours, "crowd"), tokens_of(run_engine(PLAIN), "crowd"))


def test_each_part_of_a_step_is_timed_and_each_draft_counted(run_engine: Any) -> None:
    ours = run_engine(case("eagle", 20))
    seconds, counters = ours["seconds"], ours["counters"]
    assert 0 < seconds["verification"] < seconds["step"]
    assert 0 < seconds["drafting"] < seconds["step"]
    drafts = counters["vllm:spec_decode_num_drafts"]
    accepted = counters["vllm:spec_decode_num_accepted_tokens"]
    assert ours["verified"] == [drafts, drafts + accepted]


@pytest.mark.nightly
@pytest.mark.parametrize("max_num_seqs", [8, 12, 20])
def test_what_stock_captures_is_enough_for_so_few_requests(
    max_num_seqs: int, run_engine: Any
) -> None:
    """Its list ends at 512 tokens, see test_capture_sizes.py for wider batches."""
    assert misses(run_engine(case("eagle", max_num_seqs, STOCK))) == {}


def test_batches_beyond_the_largest_graph_are_counted(run_engine: Any) -> None:
    """Negative control."""
    found = misses(run_engine(case("eagle", 20, max_cudagraph_capture_size=32)))
    assert list(found) == [f"none {WIDE}"]


def test_drafts_of_different_lengths_are_named(run_engine: Any) -> None:
    """No graph is for them: a method that drafts as many as it finds runs eager then."""
    found = misses(run_engine(case("ngram", 8)))
    assert f"none {UNEVEN}" in found
    assert set(found) <= {f"none {UNEVEN}", f"none {OTHER_K}"}
