"""The schedule of K."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

NAME = "num_speculative_tokens_per_batch_size"


def check(rows: Any) -> None:
    resolve_engine("org/target", {"method": "ngram", "num_speculative_tokens": 3, NAME: rows})


@pytest.mark.parametrize(
    "rows",
    [None, [[1, 1, 3]], [[1, 8, 3], [9, 64, 1]], [(1, 8, 0), (9, 9, 3)], [[1, 10**9, 2]]],
)
def test_right_schedules_pass(rows: Any) -> None:
    check(rows)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "valid: a list, not empty"),
        ("1-8:3", "valid: a list"),
        ([[1, 8]], "[1, 8] is no row of three whole numbers"),
        ([1, 8, 3], "1 is no row"),
        ([[1, 8, "3"]], "is no row of three whole numbers"),
        ([[1, 8, True]], "is no row of three whole numbers"),
        ([[1, 8, 3.0]], "is no row of three whole numbers"),
        ([[8, 1, 3]], "row [8, 1, 3] must ascend"),
        ([[0, 8, 3]], "row [0, 8, 3] must ascend from 1"),
        ([[1, 8, -1]], "K=-1 is not within 0 to num_speculative_tokens=3"),
        ([[1, 8, 4]], "K=4 is not within 0 to num_speculative_tokens=3"),
        ([[1, 4, 99]], "K=99 is not within 0 to num_speculative_tokens=3"),
        ([[2, 8, 3]], "the first row [2, 8, 3] must begin with batch size 1"),
        ([[1, 8, 3], [8, 9, 1]], "row [8, 9, 1] must begin right after"),
        ([[1, 8, 3], [10, 12, 1]], "row, with 9"),
        ([[9, 12, 1], [1, 8, 3]], "the first row [9, 12, 1] must begin"),
        ([[1, 10**100, 3], [5, 6, 1]], "must begin right after"),
    ],
)
def test_wrong_schedules_are_refused_by_what_is_wrong(rows: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check(rows)
    assert raised.value.option == f"speculative_config.{NAME}"
    assert problem in str(raised.value)
    assert "valid: " in str(raised.value)


LIMIT = "disable_by_batch_size"
SPEC = {"method": "ngram", "num_speculative_tokens": 3}


def test_a_limit_is_a_schedule_with_no_drafts_beyond_it() -> None:
    found = resolve_engine("org/target", {**SPEC, LIMIT: 4})
    assert found is not None
    assert found.schedule == ((1, 4, 3), (5, 5, 0))
    assert found.sources["schedule"] == f"speculative_config.{LIMIT}"
    assert LIMIT not in found.options


@pytest.mark.parametrize("limit", [0, -1, 2.0, True, "four", 2**31])
def test_a_wrong_limit_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{LIMIT}=.*valid: a whole number from 1 to 2147483647"):
        resolve_engine("org/target", {**SPEC, LIMIT: limit})


def test_a_limit_beside_a_schedule_is_refused() -> None:
    with pytest.raises(ConfigError, match=rf"{LIMIT}=4: contradicts {NAME}"):
        resolve_engine("org/target", {**SPEC, LIMIT: 4, NAME: [[1, 4, 3]]})


@pytest.mark.parametrize("asked", [{LIMIT: 4}, {NAME: [[1, 4, 3], [5, 8, 0]]}])
def test_both_go_with_data_parallelism(asked: dict[str, Any]) -> None:
    """vLLM would turn it off, with a warning among others."""
    resolve_engine("org/target", {**SPEC, **asked}, {}, EngineOptions(data_parallel_size=2))


@pytest.mark.parametrize(
    ("copies", "is_moe", "are_coupled"), [(1, True, False), (2, False, False), (2, True, True)]
)
def test_copies_of_experts_are_coupled(copies: int, is_moe: bool, are_coupled: bool) -> None:
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=copies),
        model_config=SimpleNamespace(is_moe=is_moe),
    )
    assert has_lockstep_replicas(config) == are_coupled


@pytest.mark.parametrize(
    ("asked", "lengths", "of_graphs"),
    [
        ({}, (0, 3), (1, 3)),
        ({NAME: [[1, 4, 3]]}, (3,), ()),
        ({NAME: [[1, 4, 3], [5, 8, 2], [9, 9, 3]]}, (2, 3), (1, 2, 3)),
        ({LIMIT: 4}, (0, 3), (1, 3)),
    ],
)
def test_every_length_is_known(
    asked: dict[str, Any], lengths: tuple[int, ...], of_graphs: tuple[int, ...]
) -> None:
    found = resolve_engine("org/target", {**SPEC, **asked})
    assert found.lengths == lengths
    assert found.lengths_of_graphs == of_graphs


def test_lengths_that_are_chosen_from_are_known() -> None:
    ours = {"ascend_spec": {"draft_length": "adaptive", "draft_lengths": [0, 2]}}
    found = resolve_engine("org/target", SPEC, ours)
    assert found.lengths == (0, 2)
    assert found.lengths_of_graphs == (1, 2)


def test_a_tree_has_graphs_of_its_drafts_and_of_a_single_draft_step() -> None:
    eagle = {"method": "eagle", "model": "org/eagle"}
    found = resolve_engine("org/target", eagle, {"ascend_spec": {"tree": "5x3"}})
    assert (found.max_k, found.lengths, found.lengths_of_graphs) == (15, (15,), (1, 15))


@pytest.mark.parametrize(
    ("asked", "ours"),
    [
        ({NAME: [[1, 8, 3], [9, 64, 1]]}, {}),
        ({LIMIT: 4}, {}),
        ({}, {"ascend_spec": {"draft_length": "adaptive"}}),
        ({}, {"ascend_spec": {"draft_length": "auto"}}),
    ],
)
def test_a_length_that_changes_is_nothing_to_warn_of(
    asked: dict[str, Any], ours: dict[str, Any]
) -> None:
    """It changes the text of no request with a seed."""
    found = resolve_engine("org/target", {**SPEC, **asked}, ours)
    assert found is not None
    assert found.warnings == ()
