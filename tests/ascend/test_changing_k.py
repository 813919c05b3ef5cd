"""K that changes from step to step in full graphs, on the simulated NPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import Case
from tests.ascend.processes import Outcome, assert_same_drafts, tokens_of
from tests.ascend.test_graph_steps import PLAIN, READS_PROMPTS, misses
from tests.engines import assert_same
from vllm_ascend_spec.step_report import WIDE

# As requests come to their ends, K goes from 2 to 1 to 3.
SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 3, 3], [4, 6, 1], [7, 8, 2]]}
ADAPTIVE = {"draft_length": "adaptive"}
AUTO = {"draft_length": "auto"}
FEW_GRAPHS = {"additional_config": {"ascend_spec": {"capture_graphs": 5}}}


def case(
    method: str,
    section: dict[str, Any] | None = None,
    mode: str | None = "FULL_DECODE_ONLY",
    **engine: Any,
) -> Case:
    """Return an engine with a schedule of K, or with what ``section`` says instead."""
    section = section or {}
    options = {} if section in (ADAPTIVE, AUTO) else SCHEDULE
    graphs = {"compilation_config": {"cudagraph_mode": mode} if mode else {}}
    engine = {"additional_config": {"ascend_spec": section} if section else {}} | graphs | engine
    return Case(
        method=method,
        mode="default",
        engine=engine,
        requests=("crowd",),
        options=options,
        watched=True,
    )


def eager(method: str) -> Case:
    """Return the same without graphs."""
    return case(method, mode=None, enforce_eager=True)


def replayed(outcome: Outcome) -> dict[str, int]:
    """Return how many steps replayed which graph."""
    steps = outcome["graph_steps_of"]["crowd"]
    return {name: n for name, n in steps.items() if n and not name.startswith("none")}


def check(outcome: Outcome, run_engine: Any) -> None:
    """Check that every decode step replayed a full graph and K changed, and the answers."""
    assert misses(outcome) == {}
    assert "piecewise" not in replayed(outcome)
    assert replayed(outcome)["full"] >= 10
    assert sum(n > 0 for n in outcome["lengths"].values()) >= 2, outcome["lengths"]
    assert_same(tokens_of(outcome, "crowd"), tokens_of(run_engine(PLAIN), "crowd"))


@pytest.mark.parametrize(
    ("method", "engine"),
    [
        # With fewer graphs than batch sizes, so that some batches are padded.
        ("mtp", {"async_scheduling": True, **FEW_GRAPHS}),
        pytest.param("eagle", {}, marks=pytest.mark.nightly),
        pytest.param("eagle3", {}, marks=pytest.mark.nightly),
        pytest.param("medusa", {}, marks=pytest.mark.nightly),
        pytest.param("draft_model", {}, marks=pytest.mark.nightly),
        pytest.param("peagle", {}, marks=pytest.mark.nightly),
        pytest.param("dspark", {}, marks=pytest.mark.nightly),
        pytest.param("hybrid", {}, marks=pytest.mark.nightly),
    ],
)
def test_every_decode_step_replays_a_full_graph(
    method: str, engine: dict[str, Any], run_engine: Any
) -> None:
    check(run_engine(case(method, **engine)), run_engine)


def test_decode_steps_replay_the_same_graphs_in_the_default_mode(run_engine: Any) -> None:
    """Graphs of pieces are for prompts alone."""
    found, only_full = (
        run_engine(one)["graph_steps_of"]["crowd"]
        for one in (case("eagle", mode=None), case("eagle"))
    )
    assert found["full"] == only_full["full"]
    assert found.get("piecewise", 0) + found[READS_PROMPTS] == only_full[READS_PROMPTS]


def test_with_k_chosen_too(run_engine: Any) -> None:
    """Harder than any chooser: another length in each step, none among them."""
    found = run_engine(case("eagle", ADAPTIVE), chosen=[3, 0, 1, 0, 0, 2, 3, 1])
    check(found, run_engine)
    assert set(found["lengths"]) == {"0", "1", "2", "3"}


def test_with_k_or_none(run_engine: Any) -> None:
    """What an engine does by default."""
    found = run_engine(case("eagle", AUTO), chosen=[3, 0, 0, 3, 0])
    check(found, run_engine)
    assert set(found["lengths"]) == {"0", "3"}


def test_drafts_are_those_of_an_engine_without_graphs(run_engine: Any) -> None:
    """Token for token, and their steps are replayed, too."""
    found, wanted = (run_engine(one) for one in (case("eagle"), eager("eagle")))
    assert_same_drafts(found, wanted, "crowd")
    assert found["lengths"] == wanted["lengths"]
    # What is replayed does not come by here; steps with prompts do.
    assert len(found["draft_rows_of"]["crowd"]) == found["graph_steps_of"]["crowd"][READS_PROMPTS]
    assert len(wanted["draft_rows_of"]["crowd"]) > len(found["draft_rows_of"]["crowd"])
    # The last step's draft nobody tells.
    steps = found["graph_steps_of"]["crowd"]
    assert found["draft_graphs"]["none"] == steps[READS_PROMPTS]
    assert found["draft_graphs"]["full"] == steps["full"] - 1
    assert wanted["draft_graphs"] == {}


@pytest.mark.nightly  # of vllm-ascend's own loop
def test_a_loop_with_all_steps_in_one_graph_has_graphs_of_pieces(run_engine: Any) -> None:
    """Negative control: what vLLM does wherever K changes."""
    found = run_engine(case("eagle", {"draft_loop": "stock"}))
    assert set(replayed(found)) == {"piecewise"}


# By day sizes are given in every engine of test_matrix.py; which of them serve a length is looked
# at by test_capture_sizes.py.
@pytest.mark.nightly
def test_sizes_that_were_given_serve_each_length(run_engine: Any) -> None:
    """Those for one length alone leave the others without."""
    sizes = {"cudagraph_mode": "FULL_DECODE_ONLY"}
    every = sorted({n * rows for n in range(1, 9) for rows in (2, 3, 4)})
    given = case("eagle", compilation_config={**sizes, "cudagraph_capture_sizes": every})
    check(run_engine(given), run_engine)


@pytest.mark.nightly  # by day test_graph_steps.py counts batches beyond the largest graph
def test_batches_without_a_graph_of_their_length_are_counted(run_engine: Any) -> None:
    """Negative control."""
    found = run_engine(
        case(
            "eagle",
            compilation_config={
                "cudagraph_mode": "FULL_DECODE_ONLY",
                "max_cudagraph_capture_size": 16,
            },
        )
    )
    assert f"none {WIDE}" in misses(found)
