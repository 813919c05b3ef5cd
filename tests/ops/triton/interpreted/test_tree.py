"""The Triton kernels of ``verify_tree`` against the reference; on chains, ``verify_seeded``'s."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.batches import int32
from tests.ops.cases import KINDS, parity_cases
from tests.ops.seeded import seeded_case
from tests.ops.trees import (
    SHAPES,
    as_lists,
    assert_as_the_reference,
    greedy_case,
    lengths_of,
    path_to_the_last_node,
    spoil_other_rows,
    ties_of_result,
    tree_cases,
)
from vllm_ascend_spec.ops import triton_launch
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import triton, verify_tree

# Rows are sampled as by ``verify_seeded``, so few cases do by day.
FEW: dict[str, int] = {"max_vocab": 200, "max_requests": 2, "max_drafts": 5}


def test_random_trees() -> None:
    """As by the reference, and rows beside the path have no effect."""
    ties = 0
    for case in tree_cases(3, seed=51, **FEW):
        result = verify_tree(**case, backend="triton")
        ties += ties_of_result(case, result)
        spoilt = {**case, "logits": spoil_other_rows(case, result)}
        assert as_lists(verify_tree(**spoilt, backend="triton")) == as_lists(result)
    assert ties <= 1


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_kind_of_logits(kind: str) -> None:
    cases = tree_cases(5, seed=52, kind=kind, max_vocab=300)
    assert sum(assert_as_the_reference(case, "triton") for case in cases) <= 1


@pytest.mark.nightly
@pytest.mark.parametrize("shape", dict.fromkeys(SHAPES))
def test_every_shape(shape: str) -> None:
    cases = tree_cases(6, seed=53, shape=shape, max_vocab=300)
    assert sum(assert_as_the_reference(case, "triton") for case in cases) <= 1


@pytest.mark.nightly
def test_rows_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launch, "USUAL_SIDE", 16)
    monkeypatch.setattr(triton_launch, "PROGRAMS_PER_CORE", 40)
    for case in tree_cases(4, seed=54, vocab_size=1000, max_requests=2):
        assert_as_the_reference(case, "triton")


def test_chains_are_verified_as_by_verify_seeded() -> None:
    for index, case in enumerate(parity_cases(2, seed=55, **FEW)):
        chain = seeded_case(case, index)
        parents = int32([node - 1 for length in lengths_of(chain) for node in range(length)])
        tokens, counts, _ = verify_tree(**chain, parents=parents, backend="triton")
        expected = verify_seeded(**chain, backend="triton")
        assert torch.equal(tokens, expected[0])
        assert torch.equal(counts, expected[1])


@pytest.mark.parametrize(
    "shape", ["comb", *(pytest.param(s, marks=pytest.mark.nightly) for s in ("chain", "star"))]
)
def test_trees_of_64_nodes(shape: str) -> None:
    case = path_to_the_last_node(num_nodes=64, vocab_size=66, shape=shape)
    ((tokens, rows),) = as_lists(verify_tree(**case, backend="triton"))
    assert rows[-1] == 64
    assert tokens == [*rows[1:], 0]


def test_edges() -> None:
    """Padding, equal siblings, and no nodes at all."""
    wanted: dict[tuple[Any, ...], tuple[list[int], list[int]]] = {
        ((-1, 0, -1, -1), (-1, 1, -1, 0), (0, 1, 1, 1, 2)): ([0, 2], [0, 4]),
        ((-1, -1, 1), (4, 4, 5), (4, 3, 5, 6)): ([4, 3], [0, 1]),
        ((), (), (3,)): ([3], [0]),
    }
    for (parents, drafts, best), path in wanted.items():
        case = greedy_case(list(parents), list(drafts), list(best), vocab=8)
        assert as_lists(verify_tree(**case, backend="triton")) == [path]
    none = greedy_case([], [], [], vocab=8)
    for name in ("cu_num_draft_tokens", "temperature", "seeds", "positions"):
        none[name] = none[name][:0]
    assert as_lists(verify_tree(**none, backend="triton")) == []


@pytest.mark.parametrize("parent", [-7, 1, 2, 10**6])
def test_a_node_that_is_not_below_an_earlier_one_is_not_reached(parent: int) -> None:
    """On a GPU the order is not checked."""
    case = greedy_case([-1, parent, 1], [1, 2, 3], [1, 2, 3, 0], vocab=4)
    filters = dict.fromkeys(("top_k", "top_p", "min_p"))
    assert as_lists(triton.verify_tree(**case, **filters)) == [([1, 2], [0, 1])]
