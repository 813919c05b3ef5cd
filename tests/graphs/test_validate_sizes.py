"""A list of sizes is honoured exactly, or refused with the nearest valid one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.cases import Case, cases
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.budget import Budget
from vllm_ascend_spec.graphs.planner import plan
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts, tiers_of_schedule
from vllm_ascend_spec.graphs.validate_sizes import check, validate


@pytest.mark.parametrize(
    ("sizes", "max_num_seqs", "k", "nearest", "problem"),
    [
        # What a ModelArts template asks for: batches of 1 to 4 with K=4.
        ([1, 2, 3, 4], 4, 4, [5, 10, 15, 20], "1 is no multiple of 5 tokens"),
        ([4, 8, 12, 16], 4, 4, [5, 10, 15, 20], "4 is no multiple of 5 tokens"),
        # vLLM makes [10] of it where 16 is the largest, and says nothing.
        ([8, 16], 16, 4, [10, 20], "8 is no multiple of 5 tokens"),
        # vLLM refuses it where 2 is the largest.
        ([1, 2], 8, 3, [4, 8], "1 is no multiple of 4 tokens"),
        ([1, 2, 4, 8, 16, 32], 64, 3, [4, 8, 16, 32, 64, 128], "1 is no multiple"),
        ([6, 6], 4, 2, [6], "6 is there twice"),
        ([6, 999], 4, 2, [6, 12], "999 is more than max_num_seqs=4 requests take, 12"),
        ([6, 1000], 4, 2, [6, 12], "1000 is no multiple of 3 tokens"),
        ([5], 100, 15, [16], "5 is no multiple of 16 tokens"),
    ],
)
def test_the_nearest_list(sizes, max_num_seqs, k, nearest, problem) -> None:
    verdict = validate(sizes, max_num_seqs, k)
    assert not verdict.is_valid
    assert verdict.problem.startswith(problem)
    assert list(verdict.sizes) == nearest
    with pytest.raises(ConfigError) as refused:
        check(sizes, max_num_seqs, k)
    assert f"nearest valid list: {nearest}" in str(refused.value)
    assert "cudagraph_capture_sizes" in str(refused.value)


@pytest.mark.parametrize("sizes", [[5, 10, 15, 20], [20, 5], [5], (10, 20)])
def test_a_valid_list_is_honoured_exactly(sizes) -> None:
    verdict = check(sizes, 4, 4)
    assert verdict.is_valid
    assert verdict.sizes == tuple(sorted(sizes))
    assert verdict.sizes_by_k == {4: tuple(sorted(sizes))}


def test_batches_beyond_the_list_are_named() -> None:
    assert validate([5, 10], 4, 4).eager == {4: (3, 4)}


def test_with_several_tiers_each_size_has_to_fit_one() -> None:
    tiers = tiers_of_schedule(8, [[1, 4, 3], [5, 8, 1]])
    verdict = validate([4, 10, 16], 8, tiers)
    assert verdict.is_valid
    assert verdict.sizes_by_k == {1: (4, 10, 16), 3: (4, 16)}
    assert not validate([4, 9], 8, tiers).is_valid
    # 9 fits no tier; 10 is the next that fits one.
    assert validate([4, 9], 8, tiers).sizes == (4, 10)
    # K=1 has no size above 16.
    assert validate([17], 8, tiers).sizes == (20,)


def test_ranks_have_to_divide_sizes_too() -> None:
    verdict = validate([3, 6], 8, 2, divisor=4)
    assert verdict.problem == "3 is no multiple of 12 tokens"
    assert verdict.sizes == (12, 24)
    with pytest.raises(ConfigError, match="divisor"):
        validate([3], 2, 2, divisor=4)


@pytest.mark.parametrize("sizes", [[], "8", 8, [0], [2.5], [True], None])
def test_what_is_no_list_of_sizes_is_refused(sizes) -> None:
    with pytest.raises(ConfigError, match="cudagraph_capture_sizes"):
        validate(sizes, 8, 1)


@settings(max_examples=500, deadline=None)
@given(cases(24), st.data())
def test_the_nearest_list_is_valid_and_a_valid_one_is_its_own(case: Case, data) -> None:
    engine = case.engine
    largest = engine.max_num_seqs * engine.query_len
    sizes = data.draw(st.lists(st.integers(1, 2 * largest), min_size=1, max_size=8))
    arguments = (engine.max_num_seqs, engine.tiers, engine.divisor)
    verdict = validate(sizes, *arguments)
    again = validate(verdict.sizes, *arguments)
    assert again.is_valid
    assert again.sizes == verdict.sizes
    if verdict.is_valid:
        assert list(verdict.sizes) == sorted(sizes)


@settings(max_examples=300, deadline=None)
@given(cases(24), st.integers(3, 10))
def test_every_plan_is_valid(case: Case, graphs: int) -> None:
    engine = case.engine
    planned = plan(
        engine.max_num_seqs, engine.tiers, budget=Budget(graphs=graphs), divisor=engine.divisor
    )
    verdict = validate(planned.sizes, engine.max_num_seqs, engine.tiers, engine.divisor)
    assert verdict.is_valid
    for k, sizes in planned.sizes_by_k.items():
        assert set(sizes) <= set(verdict.sizes_by_k[k])


def test_tiers_cannot_be_empty() -> None:
    with pytest.raises(ConfigError, match="tiers"):
        validate([4], 8, ())
    assert validate([4], 8, tiers_of_drafts(8, [3])).is_valid
