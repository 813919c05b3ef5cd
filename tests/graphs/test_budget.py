"""What a budget comes to, what graphs take of memory, and their streams on an old CANN."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.budget import Budget, GraphCost, limits_of
from vllm_ascend_spec.graphs.planner import plan
from vllm_ascend_spec.graphs.streams import USABLE_STREAMS, streams_each

MIB = 1024 * 1024


def test_streams_are_the_formula_that_vllm_ascend_had() -> None:
    """Its own example: 48 layers, four ranks of tensor parallelism, 1920 streams: 19 graphs."""
    assert streams_each(48, communication_domains=1) == 98
    assert USABLE_STREAMS // 98 == 19
    assert streams_each(36) == 37
    assert streams_each(36, draft_layers=1) == 39
    assert streams_each(61, communication_domains=3) == 248


def test_memory_is_a_shared_pool_and_a_part_for_each_graph() -> None:
    cost = GraphCost(bytes_each=5 * MIB, bytes_per_token=10)
    assert cost.bytes_of(2, 100) == 10 * MIB + 1000
    assert cost.bytes_of(0, 0) == 0


def test_all_limits_hold() -> None:
    cost = GraphCost(bytes_each=10, bytes_per_token=1)
    assert limits_of(Budget(), 1, 4, 1024).graphs is None
    assert limits_of(Budget(graphs=12), 1, 4, 1024).graphs == 12
    assert limits_of(Budget(bytes=1124, cost=cost), 1, 4, 1024).graphs == 10
    found = limits_of(Budget(graphs=8, bytes=1124, cost=cost), 1, 4, 1024)
    assert (found.graphs, found.max_tokens) == (8, None)
    assert found.reason == "graphs=8, bytes=1124"


def test_too_little_memory_for_the_largest_graph_makes_it_smaller() -> None:
    cost = GraphCost(bytes_each=100, bytes_per_token=10)
    found = limits_of(Budget(bytes=5000, cost=cost), 1, 4, 1024)
    assert (found.graphs, found.max_tokens) == (1, 490)
    planned = plan(256, 3, budget=Budget(bytes=5000, cost=cost))
    assert planned.sizes == (488,)
    assert planned.eager_batches[0] == 123
    assert "bytes=5000" in planned.notes[0]


def test_memory_without_a_pool_does_not_bound_the_tokens() -> None:
    cost = GraphCost(bytes_each=100, bytes_per_token=0)
    found = limits_of(Budget(bytes=202, cost=cost), 3, 4, 1024)
    assert (found.graphs, found.max_tokens) == (2, 1024)


def test_memory_for_fewer_graphs_than_tiers() -> None:
    cost = GraphCost(bytes_each=100, bytes_per_token=1)
    found = limits_of(Budget(bytes=260, cost=cost), 3, 4, 1024)
    assert (found.graphs, found.max_tokens) == (2, 60)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(max_tokens=3), ["budget.max_tokens=3", "nearest that works is 4", "1024"]),
        (
            Budget(bytes=100, cost=GraphCost(99, 1)),
            ["budget.bytes=100", "nearest that works is 103", "covering all takes 1123"],
        ),
    ],
)
def test_a_budget_for_no_graph_names_the_least_that_works(budget: Budget, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        limits_of(budget, 1, 4, 1024)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("name", ["graphs", "max_tokens", "bytes"])
def test_a_limit_is_a_number_of_one_or_more(name: str) -> None:
    with pytest.raises(ConfigError, match=f"budget.{name}=0"):
        Budget(**{name: 0})


def test_bytes_need_to_know_what_a_graph_takes() -> None:
    with pytest.raises(ConfigError, match=r"budget.bytes=9.*what a graph takes"):
        Budget(bytes=9)
