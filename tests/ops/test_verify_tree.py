"""``verify_tree``: its walk, that trees cannot change what it yields, and its edge cases."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.ops.batches import backends_on_cpu, int32
from tests.ops.cases import KINDS, parity_cases, with_gaps
from tests.ops.seeded import seeded_case
from tests.ops.trees import (
    SHAPES,
    as_lists,
    assert_as_the_reference,
    greedy_case,
    path_to_the_last_node,
    samples_of_rows,
    spoil_other_rows,
    tree_cases,
    walked,
)
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import OP, reference, verify_tree

BACKENDS = backends_on_cpu(OP)
OTHERS = backends_on_cpu(OP, without=("reference",))
NAN = float("nan")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_tree_decides_only_how_many_tokens_there_are(backend: str) -> None:
    """Each row's sample is the one that it has by itself, and the rest is the walk."""
    for arguments in tree_cases(40, seed=31, max_vocab=600):
        result = verify_tree(**arguments, backend=backend)
        assert as_lists(result) == walked(arguments, samples_of_rows(arguments, backend))
        spoilt = {**arguments, "logits": spoil_other_rows(arguments, result)}
        assert as_lists(verify_tree(**spoilt, backend=backend)) == as_lists(result)


@pytest.mark.parametrize("backend", BACKENDS)
def test_chains_are_verified_as_by_verify_seeded(backend: str) -> None:
    for index, case in enumerate(parity_cases(30, seed=32, max_vocab=600, max_drafts=8)):
        chain = seeded_case(case, index)
        ends = [0, *chain["cu_num_draft_tokens"].tolist()]
        lengths = [end - start for start, end in itertools.pairwise(ends)]
        parents = int32([node - 1 for length in lengths for node in range(length)])
        tokens, counts, rows = verify_tree(**chain, parents=parents, backend=backend)
        expected = verify_seeded(**chain, backend=backend)
        assert torch.equal(tokens, expected[0])
        assert torch.equal(counts, expected[1])
        places = torch.arange(rows.shape[1])
        assert torch.equal(rows.long(), places.where(places < counts[:, None], -1))


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("kind", [None, *dict.fromkeys(KINDS[1:])])
def test_backends_equal_the_reference(backend: str, kind: str | None) -> None:
    fixed = {} if kind is None else {"kind": kind}
    cases = tree_cases(60 if kind is None else 12, seed=33, **fixed)
    ties = sum(assert_as_the_reference(case, backend) for case in cases)
    assert ties <= 1


@pytest.mark.nightly
@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("shape", dict.fromkeys(SHAPES))
def test_backends_equal_the_reference_in_many_cases(backend: str, shape: str) -> None:
    cases = tree_cases(300, seed=34, shape=shape, max_drafts=16)
    ties = sum(assert_as_the_reference(case, backend) for case in cases)
    assert ties <= 0.01 * len(cases)


@pytest.mark.parametrize("backend", OTHERS)
def test_large_vocabularies_equal_the_reference(backend: str) -> None:
    for case in tree_cases(2, seed=35, vocab_size=151936, max_requests=2, max_drafts=4):
        assert_as_the_reference(case, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", dict.fromkeys(SHAPES))
def test_trees_of_64_nodes(backend: str, shape: str) -> None:
    fixed: dict[str, Any] = {"vocab_size": 17, "max_requests": 3, "max_drafts": 64}
    for case in tree_cases(4, seed=36, shape=shape, **fixed):
        wide = {**case, "max_draft_len": 64}
        tokens, _, rows = verify_tree(**wide, backend=backend)
        assert tokens.shape[1] == rows.shape[1] == 65
        assert_as_the_reference(wide, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", ["chain", "comb", "star"])
def test_a_path_to_the_last_of_64_nodes(backend: str, shape: str) -> None:
    case = path_to_the_last_node(num_nodes=64, vocab_size=66, shape=shape)
    ((tokens, rows),) = as_lists(verify_tree(**case, backend=backend))
    assert rows[0] == 0
    assert rows[-1] == 64
    assert len(rows) == {"chain": 65, "comb": 23, "star": 2}[shape]
    # Each node holds its row's number.
    assert tokens == [*rows[1:], 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_of_equal_siblings_counts(backend: str) -> None:
    """What is below the second would fit and is not reached."""
    case = greedy_case([-1, -1, 1], [4, 4, 5], [4, 3, 5, 6], vocab=8)
    assert as_lists(verify_tree(**case, backend=backend)) == [([4, 3], [0, 1])]
    other = {**case, "draft_token_ids": int32([2, 4, 5])}
    assert as_lists(verify_tree(**other, backend=backend)) == [([4, 5, 6], [0, 2, 3])]


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_is_not_accepted_nor_what_is_below_it(backend: str) -> None:
    case = greedy_case([-1, 0, -1, -1], [-1, 1, -1, 0], [0, 1, 1, 1, 2], vocab=3)
    assert as_lists(verify_tree(**case, backend=backend)) == [([0, 2], [0, 4])]
    none = {**case, "draft_token_ids": int32([-1] * 4)}
    assert as_lists(verify_tree(**none, backend=backend)) == [([0], [0])]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_reqs", [0, 3])
def test_requests_without_trees(backend: str, num_reqs: int) -> None:
    no_nodes = {
        "logits": torch.zeros(num_reqs, 5),
        "draft_token_ids": int32([]),
        "cu_num_draft_tokens": int32([0] * num_reqs),
        "max_draft_len": 2,
        "parents": int32([]),
        "temperature": torch.zeros(num_reqs),
        "seeds": torch.zeros(num_reqs, dtype=torch.int64),
        "positions": torch.zeros(num_reqs, dtype=torch.int64),
    }
    tokens, counts, rows = verify_tree(**no_nodes, backend=backend)
    assert tokens.tolist() == rows.tolist() == [[0, -1, -1]] * num_reqs
    assert counts.tolist() == [1] * num_reqs
    assert tokens.shape == rows.shape == (num_reqs, 3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_with_nothing_to_sample_yield_token_0(backend: str, temperature: float) -> None:
    case = greedy_case([-1, 0, -1], [0, 0, 1], [0, 0, 0, 0], vocab=4)
    for value in (NAN, float("-inf")):
        dead = {**case, "logits": torch.full((4, 4), value)}
        dead["temperature"] = torch.tensor([temperature])
        assert as_lists(verify_tree(**dead, backend=backend)) == [([0, 0, 0], [0, 1, 2])]


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_may_have_gaps(backend: str) -> None:
    for case in tree_cases(10, seed=37, max_vocab=100):
        expected = as_lists(verify_tree(**case, backend=backend))
        assert as_lists(verify_tree(**with_gaps(case), backend=backend)) == expected


def test_the_registered_op_is_the_function_and_can_be_traced() -> None:
    (case,) = tree_cases(1, seed=38, max_vocab=50)
    case = {**dict.fromkeys(("top_k", "top_p", "min_p")), **case}
    registered = torch.ops.vllm_ascend_spec.verify_tree
    assert as_lists(registered(**case)) == as_lists(verify_tree(**case))
    positional = [case.pop(n) for n in ("logits", "draft_token_ids", "cu_num_draft_tokens")]
    arguments = (*positional, case.pop("max_draft_len"))
    torch.library.opcheck(
        registered.default, arguments, case, test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        (torch.tensor([-1, 0, -1]), "parents: dtype"),
        (int32([-1, 0]), r"parents: shape \(2,\)"),
        (int32([-1, 1, -1]), r"parents: 1 is not in \[-1, 1\), of node 1"),
        (int32([-1, 2, -1]), r"parents: 2 is not in \[-1, 1\), of node 1"),
        (int32([-1, 0, 0]), r"parents: 0 is not in \[-1, 0\), of node 0"),
        (int32([-2, 0, -1]), r"parents: -2 is not in \[-1, 0\), of node 0"),
        (int32([-1, 0, -1]).to("meta"), "parents: on meta"),
    ],
)
def test_wrong_parents_are_refused(parents: torch.Tensor, message: str) -> None:
    """Two requests, of two nodes and of one."""
    case = greedy_case([-1, 0, -1], [1, 2, 1], [0] * 5, vocab=4)
    case["cu_num_draft_tokens"] = int32([2, 3])
    for name in ("temperature", "seeds", "positions"):
        case[name] = case[name].repeat(2)
    assert len(as_lists(verify_tree(**case))) == 2
    with pytest.raises(ValueError, match=message):
        verify_tree(**{**case, "parents": parents})


def test_other_arguments_are_checked() -> None:
    case = greedy_case([-1, 0], [1, 2], [0] * 3, vocab=4)
    wrong: dict[str, tuple[Any, str]] = {
        "draft_token_ids": (int32([1, 4]), "draft_token_ids: 4 is neither"),
        "max_draft_len": (1, "max_draft_len: 1 is less than"),
        "temperature": (torch.tensor([-1.0]), r"temperature: -1\.0 is not"),
        "seeds": (torch.zeros(1, dtype=torch.int32), "seeds: dtype"),
        "positions": (torch.zeros(2, dtype=torch.int64), "positions: shape"),
    }
    for name, (value, message) in wrong.items():
        with pytest.raises(ValueError, match=message):
            verify_tree(**{**case, name: value})


@pytest.mark.parametrize("parent", [-7, 1, 2, 10**6])
def test_the_reference_does_not_reach_a_node_that_is_not_below_an_earlier_one(parent: int) -> None:
    """On other devices than a CPU the order is not checked."""
    case = greedy_case([-1, parent, 1], [1, 2, 3], [1, 2, 3, 0], vocab=4)
    for name in ("top_k", "top_p", "min_p"):
        case[name] = None
    assert as_lists(reference.verify_tree(**case)) == [([1, 2], [0, 1])]
