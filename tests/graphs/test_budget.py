"""What a budget comes to, and the estimates that it rests on."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.budget import Budget, limits_of
from vllm_ascend_spec.graphs.estimates import USABLE_STREAMS, GraphCost, estimate
from vllm_ascend_spec.graphs.planner import plan

MIB = 1024 * 1024


def test_streams_are_the_formula_that_vllm_ascend_had() -> None:
    """Its own example: 48 layers, four ranks of tensor parallelism, 1920 streams: 19 graphs."""
    cost = estimate(48, communication_domains=1)
    assert cost.streams == 98
    assert USABLE_STREAMS // cost.streams == 19
    assert estimate(36).streams == 37
    assert estimate(36, draft_layers=1).streams == 39
    assert estimate(61, communication_domains=3).streams == 248


def test_memory_is_a_shared_pool_and_a_part_for_each_graph() -> None:
    cost = estimate(36, draft_layers=1, hidden_size=4096)
    assert cost.bytes_each == 37 * 256 * 1024
    assert cost.bytes_per_token == 16 * 4096 * 2
    assert cost.bytes_of(12, 1024) == 12 * cost.bytes_each + 1024 * cost.bytes_per_token
    assert cost.bytes_of(0, 0) == 0
    measured = estimate(36, bytes_each=5 * MIB, bytes_per_token=10)
    assert measured.bytes_of(2, 100) == 10 * MIB + 1000


@pytest.mark.parametrize("details", [{"layers": 0}, {"draft_layers": -1}, {"hidden_size": 1.5}])
def test_estimates_refuse_what_is_no_count(details: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(details))):
        estimate(**{"layers": 4, **details})


def test_all_limits_hold() -> None:
    cost = GraphCost(streams=100, bytes_each=10, bytes_per_token=1)
    assert limits_of(Budget(), 1, 4, 1024).graphs is None
    assert limits_of(Budget(graphs=12), 1, 4, 1024).graphs == 12
    assert limits_of(Budget(graphs=30, streams=1920, cost=cost), 1, 4, 1024).graphs == 19
    assert limits_of(Budget(bytes=1124, cost=cost), 1, 4, 1024).graphs == 10
    found = limits_of(Budget(graphs=8, bytes=1124, streams=1920, cost=cost), 1, 4, 1024)
    assert (found.graphs, found.max_tokens) == (8, None)
    assert found.reason == "graphs=8, streams=1920, bytes=1124"


def test_too_little_memory_for_the_largest_graph_makes_it_smaller() -> None:
    cost = GraphCost(streams=1, bytes_each=100, bytes_per_token=10)
    found = limits_of(Budget(bytes=5000, cost=cost), 1, 4, 1024)
    assert (found.graphs, found.max_tokens) == (1, 490)
    planned = plan(256, 3, budget=Budget(bytes=5000, cost=cost))
    assert planned.sizes == (488,)
    assert planned.eager_batches[0] == 123
    assert "bytes=5000" in planned.notes[0]


def test_memory_without_a_pool_does_not_bound_the_tokens() -> None:
    cost = GraphCost(streams=1, bytes_each=100, bytes_per_token=0)
    found = limits_of(Budget(bytes=202, cost=cost), 3, 4, 1024)
    assert (found.graphs, found.max_tokens) == (2, 1024)


def test_memory_for_fewer_graphs_than_tiers() -> None:
    cost = GraphCost(streams=1, bytes_each=100, bytes_per_token=1)
    found = limits_of(Budget(bytes=260, cost=cost), 3, 4, 1024)
    assert (found.graphs, found.max_tokens) == (2, 60)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(max_tokens=3), ["budget.max_tokens=3", "nearest that works is 4", "1024"]),
        (
            Budget(streams=50, cost=GraphCost(98, 0, 0)),
            ["budget.streams=50", "nearest that works is 98"],
        ),
        (
            Budget(bytes=100, cost=GraphCost(1, 99, 1)),
            ["budget.bytes=100", "nearest that works is 103", "covering all takes 1123"],
        ),
    ],
)
def test_a_budget_for_no_graph_names_the_least_that_works(budget: Budget, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        limits_of(budget, 1, 4, 1024)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("name", ["graphs", "max_tokens", "streams", "bytes"])
def test_a_limit_is_a_number_of_one_or_more(name: str) -> None:
    with pytest.raises(ConfigError, match=f"budget.{name}=0"):
        Budget(**{name: 0})


def test_bytes_and_streams_need_to_know_the_model() -> None:
    for name in ("bytes", "streams"):
        with pytest.raises(ConfigError, match=f"budget.{name}=9.*layers"):
            Budget(**{name: 9})
