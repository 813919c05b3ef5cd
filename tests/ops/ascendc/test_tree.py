"""``verify_tree``'s AscendC kernels under the emulator, all of its checks on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.ascendc.kernels import bytes_read, make_emulator
from tests.ops.ascendc.test_seeded import emulators
from tests.ops.batches import Arguments, int32
from tests.ops.cases import KINDS, parity_cases
from tests.ops.emulator.build import requires_compiler
from tests.ops.seeded import seeded_case
from tests.ops.trees import (
    SHAPES,
    as_lists,
    assert_as_the_reference,
    greedy_case,
    lengths_of,
    path_to_the_last_node,
    spoil_other_rows,
    tree_cases,
)
from vllm_ascend_spec.ops.ascendc_library import use
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import ascendc, verify_tree

pytestmark = requires_compiler
BOTH_MODES = pytest.mark.parametrize("mode", ["split", "by request"])


def ties_of(cases: list[Arguments]) -> int:
    """Compare each case with the reference; return the number of requests that rounding decided."""
    ties = 0
    for case, emulator in zip(cases, emulators(), strict=False):
        with use(emulator):
            ties += assert_as_the_reference(case, "ascendc")
    return ties


def test_the_kernels_equal_the_reference() -> None:
    assert ties_of(tree_cases(36, seed=61, max_vocab=2049)) <= 1


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_kind_of_logits_equals_the_reference(kind: str) -> None:
    assert ties_of(tree_cases(72, seed=62, kind=kind)) <= 1


@pytest.mark.nightly
@pytest.mark.parametrize("shape", dict.fromkeys(SHAPES))
def test_every_shape_equals_the_reference(shape: str) -> None:
    assert ties_of(tree_cases(72, seed=63, shape=shape, max_drafts=64, max_vocab=300)) <= 1


@BOTH_MODES
def test_chains_are_verified_as_by_verify_seeded(mode: str) -> None:
    for index, case in enumerate(parity_cases(6, seed=64, max_vocab=300)):
        chain = seeded_case(case, index)
        parents = int32([node - 1 for length in lengths_of(chain) for node in range(length)])
        with use(make_emulator(num_cores=3, mode=mode)):
            tokens, counts, _ = verify_tree(**chain, parents=parents, backend="ascendc")
            expected = verify_seeded(**chain, backend="ascendc")
        assert torch.equal(tokens, expected[0])
        assert torch.equal(counts, expected[1])


@BOTH_MODES
def test_rows_beside_the_path_have_no_effect(mode: str) -> None:
    for case in tree_cases(6, seed=65, max_vocab=1500):
        with use(make_emulator(num_cores=5, mode=mode, tile=1024)):
            result = verify_tree(**case, backend="ascendc")
            spoilt = {**case, "logits": spoil_other_rows(case, result)}
            assert as_lists(verify_tree(**spoilt, backend="ascendc")) == as_lists(result)


@BOTH_MODES
@pytest.mark.parametrize("shape", ["chain", "comb", "star"])
def test_trees_of_64_nodes(mode: str, shape: str) -> None:
    case = path_to_the_last_node(num_nodes=64, vocab_size=66, shape=shape)
    emulator = make_emulator(num_cores=4, mode=mode)
    with use(emulator):
        ((tokens, rows),) = as_lists(verify_tree(**case, backend="ascendc"))
    assert rows[-1] == 64
    assert tokens == [*rows[1:], 0]
    assert max(emulator.stats.peak_ub) <= 184 * 1024


def test_a_core_with_a_whole_request_reads_the_rows_of_its_path() -> None:
    case = path_to_the_last_node(num_nodes=31, vocab_size=4096, shape="star")
    row = 4096 * 4
    emulator = make_emulator(num_cores=1, mode="by request")
    with use(emulator):
        for temperature in (0.0, 0.01):
            case["temperature"] = torch.tensor([temperature])
            ((_, rows),) = as_lists(verify_tree(**case, backend="ascendc"))
            assert rows == [0, 31]
            assert 2 * row <= bytes_read(emulator) < 3 * row


@BOTH_MODES
def test_edges(mode: str) -> None:
    """Padding, equal siblings, and no nodes at all."""
    wanted: dict[tuple[Any, ...], tuple[list[int], list[int]]] = {
        ((-1, 0, -1, -1), (-1, 1, -1, 0), (0, 1, 1, 1, 2)): ([0, 2], [0, 4]),
        ((-1, -1, 1), (4, 4, 5), (4, 3, 5, 6)): ([4, 3], [0, 1]),
        ((), (), (3,)): ([3], [0]),
    }
    with use(make_emulator(num_cores=3, mode=mode)):
        for (parents, drafts, best), path in wanted.items():
            case = greedy_case(list(parents), list(drafts), list(best), vocab=8)
            assert as_lists(verify_tree(**case, backend="ascendc")) == [path]
        none = greedy_case([], [], [], vocab=8)
        for name in ("cu_num_draft_tokens", "temperature", "seeds", "positions"):
            none[name] = none[name][:0]
        assert as_lists(verify_tree(**none, backend="ascendc")) == []


@BOTH_MODES
@pytest.mark.parametrize("parent", [-7, 1, 2, 10**6, -(2**31), 2**31 - 1])
def test_a_node_that_is_not_below_an_earlier_one_is_not_reached(mode: str, parent: int) -> None:
    """On an NPU the order is not checked."""
    case = greedy_case([-1, parent, 1], [1, 2, 3], [1, 2, 3, 0], vocab=4)
    filters = dict.fromkeys(("top_k", "top_p", "min_p"))
    with use(make_emulator(num_cores=2, mode=mode)):
        for temperature in (0.0, 0.01):
            case["temperature"] = torch.tensor([temperature])
            assert as_lists(ascendc.verify_tree(**case, **filters)) == [([1, 2], [0, 1])]


def test_tiles_have_whole_groups_of_noise() -> None:
    case = greedy_case([-1], [1], [1, 0], vocab=4)
    with (
        use(make_emulator(num_cores=1, tile=320)),
        pytest.raises(ValueError, match="tile: 320 is not a multiple of 1024"),
    ):
        verify_tree(**case, backend="ascendc")
