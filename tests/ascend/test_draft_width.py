"""Draft steps 2..K run on one row for each request, in graphs and out of them.

The engines are those of test_matrix.py, and those of test_mla.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ascend.environment import NPU
from tests.ascend.matrix import BY_NIGHT, CASES, SPECULATIVE, K, by_day_or_night, capture_sizes
from tests.ascend.targets.mla import MLA_CASES, MLA_ENVIRONMENT
from tests.ascend.targets.sparse import SPARSE_BY_NIGHT, SPARSE_CASES
from tests.marks import unless
from tests.zoo import SPECS
from tests.zoo import WITH_A_LOOP as LOOPS
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

pytestmark = unless(NO_LOOP_ON_NPU)
WITH_A_LOOP = [name for name in LOOPS if name in SPECULATIVE]
NUM_DRAFTS = SPECS["eagle"]["num_speculative_tokens"]
SPARSE, DENSE = "sparse", "deepseek"
EVERY_LOOP = (*WITH_A_LOOP, DENSE, SPARSE)
MLA = MLA_CASES | SPARSE_CASES


def loops(*modes: str) -> Any:
    """Return a decorator that runs a test for the engines of some modes, all by day or by night."""
    later = {*BY_NIGHT, *SPARSE_BY_NIGHT}
    by_night = {method for method in EVERY_LOOP if later & {f"{method}-{mode}" for mode in modes}}
    return pytest.mark.parametrize("method", by_day_or_night(EVERY_LOOP, by_night))


def outcome_of(run_engine: Any, method: str, mode: str) -> Any:
    """Return what an engine with the draft loop of a method answered."""
    if method in {SPARSE, DENSE}:
        return run_engine(MLA[f"{method}-{mode}"], {**NPU, **MLA_ENVIRONMENT})
    return run_engine(CASES[f"{method}-{mode}"])


@loops("eager")
def test_eager(method: str, run_engine: Any) -> None:
    outcome = outcome_of(run_engine, method, "eager")
    later = [rows[1:] for rows in outcome["draft_rows_of"]["greedy"]]
    assert later
    for *steps, num_reqs in later:
        assert steps == [num_reqs] * (NUM_DRAFTS - 1)


@loops("full_decode_only")
def test_full_graph(method: str, run_engine: Any) -> None:
    """What is recorded is what is replayed: the loop itself runs for the prompts only."""
    outcome = outcome_of(run_engine, method, "full_decode_only")
    recorded = {rows[0]: rows[1:-1] for rows in outcome["draft_rows_at_start"] if len(rows) > 2}
    for size in capture_sizes(K):
        num_reqs = size // (NUM_DRAFTS + 1)
        assert recorded[size] == [num_reqs] * (NUM_DRAFTS - 1)
    ran = len(outcome["draft_rows_of"]["greedy"])
    assert ran * 2 < outcome["counters_of"]["greedy"]["vllm:spec_decode_num_drafts"]


@loops("default")
def test_piecewise_graph(method: str, run_engine: Any) -> None:
    """Steps with prompts in them are not one graph: the later ones take the graph of their size."""
    outcome = outcome_of(run_engine, method, "default")
    for first, *steps, num_reqs in outcome["draft_rows_of"]["greedy"]:
        fitting = min(size for size in capture_sizes(K) if size >= num_reqs)
        assert set(steps) <= {num_reqs, fitting}
        assert first > fitting


@loops("eager", "full_decode_only")
def test_a_full_graph_drafts_as_well_as_none(method: str, run_engine: Any) -> None:
    """The same drafts are made and accepted: what is recorded sees what it should see."""
    eager, graph = (
        outcome_of(run_engine, method, mode)["counters_of"]["greedy"]
        for mode in ("eager", "full_decode_only")
    )
    assert graph == eager
