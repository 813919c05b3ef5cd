"""Draft steps 2..K run on one row for each request, in graphs and out of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.matrix import CAPTURE_SIZES, SPECULATIVE, Case
from tests.e2e.conftest import SPECS
from vllm_ascend_spec.config.methods import METHODS

WITH_A_LOOP = [method for method in SPECULATIVE if METHODS[method].has_draft_loop]
NUM_DRAFTS = SPECS["eagle"]["num_speculative_tokens"]


@pytest.mark.parametrize("method", WITH_A_LOOP)
def test_eager(method: str, run_engine: Any) -> None:
    outcome = run_engine(Case(method=method, mode="eager"), watch_draft_rows=True)
    later = [rows[1:] for rows in outcome["draft_rows"]]
    assert later
    for *steps, num_reqs in later:
        assert steps == [num_reqs] * (NUM_DRAFTS - 1)


@pytest.mark.parametrize("method", WITH_A_LOOP)
def test_full_graph(method: str, run_engine: Any) -> None:
    """What is recorded is what is replayed: the loop itself runs for the prompts only."""
    outcome = run_engine(Case(method=method, mode="full_decode_only"), watch_draft_rows=True)
    recorded = {rows[0]: rows[1:-1] for rows in outcome["draft_rows_at_start"] if len(rows) > 2}
    for size in CAPTURE_SIZES:
        num_reqs = size // (NUM_DRAFTS + 1)
        assert recorded[size] == [num_reqs] * (NUM_DRAFTS - 1)
    ran = len(outcome["draft_rows"])
    assert ran * 2 < outcome["counters"]["vllm:spec_decode_num_drafts"]


@pytest.mark.parametrize("method", WITH_A_LOOP)
def test_piecewise_graph(method: str, run_engine: Any) -> None:
    """Steps with prompts in them are not one graph: the later ones take the graph of their size."""
    outcome = run_engine(Case(method=method, mode="default"), watch_draft_rows=True)
    for first, *steps, num_reqs in outcome["draft_rows"]:
        fitting = min(size for size in CAPTURE_SIZES if size >= num_reqs)
        assert set(steps) <= {num_reqs, fitting}
        assert first > fitting


@pytest.mark.parametrize("method", WITH_A_LOOP)
def test_a_full_graph_drafts_as_well_as_none(method: str, run_engine: Any) -> None:
    """The same drafts are made and accepted: what is recorded sees what it should see."""
    eager, graph = (
        run_engine(Case(method=method, mode=mode), watch_draft_rows=True)["counters"]
        for mode in ("eager", "full_decode_only")
    )
    assert graph == eager
