"""Shapes of trees: the best one beside all others, and the order of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.config.tree_shape import (
    Path,
    Rates,
    best_tree,
    comb,
    common_rate,
    expected_tokens,
    is_principal,
    missing_parents,
    parents_of,
)


def forms_comb(tree: Iterable[Path]) -> bool:
    """Tell whether only nodes of the principal chain have children."""
    return all(is_principal(path[:-1]) for path in tree)


def test_a_comb_is_a_chain_with_siblings() -> None:
    assert comb(2, 2) == ((0,), (0, 0), (1,), (0, 1))
    assert comb(3, 1) == ((0,), (0, 0), (0, 0, 0))
    assert len(comb(5, 3)) == 15
    assert forms_comb(comb(5, 3))


def every_tree(nodes: int) -> Iterator[frozenset[Path]]:
    """Yield all trees of so many nodes in which siblings have the lowest ranks."""
    trees: set[frozenset[Path]] = {frozenset()}
    for _ in range(nodes):
        trees = {
            tree | {path}
            for tree in trees
            for before in ((), *tree)
            for path in [(*before, sum(other[:-1] == before for other in tree))]
        }
    yield from trees


def rates_of(table: list[list[float]]) -> Rates:
    """Return rates by depth and rank that fall with the rank."""

    def rate(depth: int, rank: int) -> float:
        row = sorted(table[min(depth, len(table)) - 1], reverse=True)
        return row[min(rank, len(row) - 1)] * 0.5 ** max(rank - len(row) + 1, 0)

    return rate


@pytest.mark.parametrize("nodes", range(1, 6))
@given(
    table=st.lists(st.lists(st.floats(0.01, 0.99), min_size=2, max_size=3), min_size=1, max_size=3),
    deepest=st.sampled_from([None, 1, 2, 3]),
    is_comb=st.booleans(),
)
def test_no_other_tree_of_as_many_nodes_yields_more(
    nodes: int, table: list[list[float]], deepest: int | None, is_comb: bool
) -> None:
    rates = rates_of(table)
    found = best_tree(nodes, deepest, is_comb=is_comb, rates=rates)
    assert len(set(found)) == nodes
    others = [
        expected_tokens(tree, rates)
        for tree in every_tree(nodes)
        if (deepest is None or max(map(len, tree)) <= deepest) and (not is_comb or forms_comb(tree))
    ]
    assert expected_tokens(found, rates) == pytest.approx(max(others))


@pytest.mark.parametrize("nodes", [1, 7, 15, 63])
@pytest.mark.parametrize("is_comb", [False, True])
def test_every_prefix_is_a_tree_and_the_principal_chain_comes_first(
    nodes: int, is_comb: bool
) -> None:
    tree = best_tree(nodes, is_comb=is_comb)
    assert all(parent < place for place, parent in enumerate(parents_of(tree)))
    assert not missing_parents(tree)
    principal = [is_principal(path) for path in tree]
    assert principal == sorted(principal, reverse=True)
    assert forms_comb(tree) or not is_comb


def test_rates_of_the_documents() -> None:
    """A tree of 15 is worth more than a comb, and that more than a chain, at moderate rates."""
    chain = expected_tokens((0,) * depth for depth in range(1, 16))
    assert chain < expected_tokens(best_tree(15, is_comb=True)) < expected_tokens(best_tree(15))


def test_a_comb_takes_fewer_passes() -> None:
    """As docs/methods.md and ``draft_tree.saves_passes`` say of 15 drafts: 7, not 10, for 3%."""
    found, best = best_tree(15, is_comb=True), best_tree(15)
    assert [len({path[:-1] for path in tree}) for tree in (found, best)] == [7, 10]
    assert expected_tokens(found) / expected_tokens(best) == pytest.approx(0.97, abs=0.005)


def test_common_rates_fall_with_the_rank() -> None:
    rates = [common_rate(1, rank) for rank in range(12)]
    assert rates == sorted(rates, reverse=True)
    assert all(rate > 0 for rate in rates)


def test_missing_parents() -> None:
    paths = [(0,), (0, 1, 0), (2, 0)]
    assert missing_parents(paths) == {(0, 1), (2,)}
