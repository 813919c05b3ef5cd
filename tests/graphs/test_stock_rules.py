"""Our port of the stock rules shows the gaps that users have reported."""

from __future__ import annotations

import pytest

from tests.graphs import baselines
from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.batch_distribution import uniform, weights_of
from vllm_ascend_spec.graphs.padding_stats import padding_of
from vllm_ascend_spec.graphs.step_cost import StepCost
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs
from vllm_ascend_spec.graphs.tiers import SizeGrid, tiers_of_drafts, tiers_of_schedule


def engine(k: int, max_num_seqs: int = 256, **details) -> CaptureInputs:
    return CaptureInputs(max_num_seqs, tiers_of_drafts(max_num_seqs, [k]), **details)


@pytest.mark.parametrize(
    ("k", "vllm", "ascend", "worst_vllm", "worst_ascend"),
    [
        (1, 256, 256, 0.60, 0.60),
        (2, 168, 166, 0.22, 0.50),
        (3, 128, 128, 0.33, 0.33),
        (5, 83, 83, 0.20, 0.20),
        (7, 64, 64, 0.03, 0.03),
    ],
)
def test_how_far_graphs_reach_and_their_worst_hole(
    k, vllm, ascend, worst_vllm, worst_ascend
) -> None:
    tiers = tiers_of_drafts(256, [k])
    weights = weights_of(uniform(256), tiers, 256)
    rules = ((stock_rules.vllm, vllm, worst_vllm), (stock_rules.vllm_ascend, ascend, worst_ascend))
    for rule, reach, worst in rules:
        sizes = rule(engine(k)).sizes_by_k
        assert sizes[k][-1] // (k + 1) == reach
        found = padding_of(tiers, sizes, weights, StepCost()).worst
        assert found is not None
        assert found.padding == pytest.approx(worst, abs=0.005)


def test_vllm_does_not_start_where_ranks_and_drafts_do_not_fit() -> None:
    details = {"tensor_parallel_size": 4, "sequence_parallel": True}
    refused = stock_rules.vllm(engine(2, **details))
    assert "multiples of both 3 (K+1) and 4" in refused.problem
    assert refused.sizes_by_k == {2: ()}
    assert all(
        size % 12 == 0 for size in stock_rules.vllm_ascend(engine(2, **details)).sizes_by_k[2]
    )


def test_several_k_have_the_graphs_that_v2_makes() -> None:
    rows = ((1, 8, 3), (9, 64, 1))
    found = stock_rules.vllm(CaptureInputs(64, tiers_of_schedule(64, rows), rows))
    assert "V1 has no FULL graphs" in found.note
    assert all(size % 2 == 0 for size in found.sizes_by_k[1])
    assert all(size % 4 == 0 for size in found.sizes_by_k[3])
    assert found.sizes_by_k[1][-1] == 128


def test_peers_of_as_many_graphs() -> None:
    sizes = {1: (2, 4, 8, 16), 3: (4, 8, 12)}
    assert baselines.cut(sizes, 3) == {1: (2, 4), 3: (4,)}
    # Both tiers have a graph of 8 tokens, and a limit takes both or none.
    assert baselines.cut(sizes, 4) == {1: (2, 4), 3: (4,)}
    assert baselines.cut(sizes, 100) == sizes
    assert baselines.thin(sizes, 4) == {1: (2, 16), 3: (4, 12)}
    assert baselines.thin(sizes, 1) == {1: (), 3: (12,)}
    assert baselines.even({3: SizeGrid(4, 1, 1, 10)}, 4) == {3: (12, 20, 32, 40)}
    assert baselines.thinned(range(1, 11), 3) == (1, 5, 10)
    assert baselines.even_grid(8, 4, 100) == (4, 8)
