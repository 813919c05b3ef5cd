"""Drafts laid out as trees: which pass finds which token, in which order, and what is learnt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.tree_shape import (
    Tree,
    best_tree,
    comb,
    common_rate,
    expected_tokens,
    in_order,
    parents_of,
)
from vllm_ascend_spec.methods.drafts_trees import DraftsTreesMixin
from vllm_ascend_spec.methods.found_trees import principal_chain, principal_first
from vllm_ascend_spec.methods.tree_choice import EVERY, choice_of
from vllm_ascend_spec.methods.tree_drafts import Pass, TreeDrafts, chain_of_passes
from vllm_ascend_spec.worker.trees import TreesMixin

TREE = in_order([(0,), (0, 0), (0, 0, 0), (1,), (0, 1), (1, 0), (1, 0, 1), (1, 0, 0)])
VOCABULARY = 50


def logits_of(text: tuple[int, ...]) -> torch.Tensor:
    """Return logits that depend on a text alone."""
    seed = hash(text) % 2**31
    return torch.rand(VOCABULARY, generator=torch.Generator().manual_seed(seed))


def token_after(text: tuple[int, ...], rank: int) -> int:
    return int(logits_of(text).topk(rank + 1).indices[rank])


def expected(tree: Tree, text: tuple[int, ...]) -> list[int]:
    """Return the token of each node, worked out one by one."""
    tokens = []
    for path in tree:
        own = text
        for rank in path:
            own = (*own, token_after(own, rank))
        tokens.append(own[-1])
    return tokens


@pytest.mark.parametrize("tree", [TREE, comb(4, 3), best_tree(15), best_tree(15, is_comb=True)])
def test_a_pass_for_each_node_that_others_follow(tree: Tree) -> None:
    """A draft that reads what it drafted, and keeps one key for each place."""
    drafts = TreeDrafts.by_node(tree)
    texts = [(1, 2), (7,)]
    keys = [dict(enumerate(text)) for text in texts]
    drafts.take(torch.stack([logits_of(text) for text in texts]))
    for each in drafts.passes:
        read = drafts.token_of(each).tolist()
        seen = []
        for text, own, token in zip(texts, keys, read, strict=True):
            own[len(text) + each.depth] = token
            seen.append(tuple(own[place] for place in range(len(text) + each.depth + 1)))
        drafts.take(torch.stack([logits_of(text) for text in seen]))
    assert drafts.lay_out().tolist() == [expected(tree, text) for text in texts]
    assert drafts.num_steps == max(map(len, tree))
    # As after a chain: nothing is left for the next step.
    assert not drafts._found


def test_a_pass_for_each_depth() -> None:
    """A draft that does not read what it drafted finds the same after siblings."""
    drafts = TreeDrafts.by_depth(TREE)
    steps = [torch.rand(2, VOCABULARY) for _ in range(3)]
    for logits in steps:
        drafts.take(logits)
    ranked = [logits.topk(2).indices for logits in steps]
    found = drafts.lay_out()
    for place, path in enumerate(TREE):
        assert found[:, place].tolist() == ranked[len(path) - 1][:, path[-1]].tolist()


def test_a_comb_has_the_passes_of_a_chain() -> None:
    assert TreeDrafts.by_node(comb(4, 3)).passes == chain_of_passes(4)
    assert chain_of_passes(3) == [Pass(0, 0, 0), Pass(1, 0, 1)]
    assert not chain_of_passes(1)


class Drafting(DraftsTreesMixin):
    """A drafter of trees over nothing."""

    def __init__(self, tree: Tree, **more: Any) -> None:
        asked = SpecConfig(
            device="cpu",
            family="vllm",
            method="eagle3",
            vllm_method="eagle3",
            drafter=(),
            max_k=len(tree),
            tree=tree,
            has_trees=True,
            **more,
        )
        self.runner = SimpleNamespace(input_batch=SimpleNamespace(num_reqs=2))
        self.set_up_tree(asked, TreeDrafts.by_node)


def test_only_as_much_is_drafted_as_k_says() -> None:
    """Up to the principal chain's length a chain, with no more passes than drafts."""
    tree = comb(5, 3)
    drafting = Drafting(tree)
    steps = [drafting.num_steps(k) for k in range(16)]
    assert steps == [0, 1, 2, 3, 4, 5] + 10 * [5]
    for k in range(6):
        drafting.num_steps(k)
        assert drafting.tree is None
        assert drafting.take_parents() == [[], []]
    for k in (6, 10, 15):
        drafting.num_steps(k)
        assert drafting.num_drafts == k
        assert drafting.take_parents() == 2 * [parents_of(tree[:k])]
        made = drafting.tree
        # Made once.
        drafting.num_steps(3)
        drafting.num_steps(k)
        assert drafting.tree is made


def test_a_chain_stays_one_whatever_shape_was_learnt() -> None:
    """Of a tree that is wider by now, two drafts would be the likeliest first tokens."""
    drafting = Drafting(best_tree(6), shapes_tree=True)
    longest = drafting._longest_chain
    for _ in range(20 * EVERY):
        shape = drafting._shape
        assert shape is not None
        wide = next(node for node, path in enumerate(shape) if path == (1,))
        drafting.learn_tree([drafting._parents], [[0, wide + 1]])
    assert sum(not any(path) for path in drafting._shape or ()) < longest
    assert drafting.num_steps(longest) == longest
    assert drafting.tree is None
    drafting.num_steps(6)
    assert drafting.take_parents() == 2 * [parents_of(drafting._shape or ())]
    drafting.forget()
    assert drafting._shape == best_tree(6)


def test_chains_keep_nothing_of_a_tree_before() -> None:
    """Otherwise their drafts would be verified as that tree's."""
    runner = TreesMixin()
    runner.requests = {"a": None, "b": None, "waits": None}
    given: list[Any] = [[-1, 0, -1], [-1, -1]]
    runner.drafter = SimpleNamespace(take_parents=lambda: given)
    runner.note_trees(["a", "b"])
    runner.drafter.take_parents = lambda: [[-1, -1]]
    runner.note_trees(["waits"])
    given[:] = [[], [-1, 0]]
    runner.drafter.take_parents = lambda: given
    runner.note_trees(["a", "b"])
    assert runner.parents_of_drafts == {"waits": [-1, -1]}


@given(st.data())
def test_the_principal_chain_first(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 9))
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(size)]
    tokens = list(range(100, 100 + size))
    found = principal_first(tokens, parents)
    assert sorted(found.tokens) == tokens
    assert all(parent < node for node, parent in enumerate(found.parents))
    chain = principal_chain(found.parents)
    assert chain == list(range(len(chain)))
    # The same tree: each token follows the same one.
    before = {tokens[n]: tokens[p] if p >= 0 else None for n, p in enumerate(parents)}
    after = {
        found.tokens[n]: found.tokens[p] if p >= 0 else None for n, p in enumerate(found.parents)
    }
    assert before == after


def test_the_shape_follows_what_is_accepted() -> None:
    """Of a text in which every second token is the draft's second choice, the tree gets wide."""
    choice = choice_of(6, None)
    assert choice.tree == best_tree(6)
    for step in range(20 * EVERY):
        first = (step % 2,)
        assert first in choice.tree
        choice.note([0, choice.tree.index(first) + 1], 6)
        choice.look()
    assert choice.rate(1, 0) == pytest.approx(0.5, abs=0.05)
    assert choice.rate(1, 1) == pytest.approx(0.5, abs=0.05)
    worth = expected_tokens(choice.tree, choice.rate)
    assert worth > expected_tokens(best_tree(6), choice.rate)
    assert {(0,), (1,), (1, 0)} <= set(choice.tree)


def test_the_shape_becomes_nearly_a_chain_where_all_is_accepted() -> None:
    """One draft stays beside it: without any, nobody would see that the text has changed."""
    choice = choice_of(5, None)
    for _ in range(30 * EVERY):
        chain = [node + 1 for node, path in enumerate(choice.tree) if not any(path)]
        choice.note([0, *chain], 5)
        choice.look()
    assert choice.tree == (*((0,) * depth for depth in range(1, 5)), (1,))
    for _ in range(30 * EVERY):
        choice.note([0, choice.tree.index((1,)) + 1], 5)
        choice.look()
    assert {(0,), (1,), (2,)} <= set(choice.tree)


def test_what_a_place_yielded_long_ago_is_forgotten() -> None:
    """A node that left the tree is not observed any more."""
    choice = choice_of(6, None)
    for _ in range(10 * EVERY):
        choice.note([0], 6)
    before = choice.rate(1, 1)
    assert before < 0.02
    for _ in range(200 * EVERY):
        choice.note([0, 1], 1)
        choice.look()
    assert choice.rate(1, 1) > 0.1


def test_rates_fall_with_the_rank_and_begin_with_common_ones() -> None:
    choice = choice_of(6, 3)
    assert choice.rate(2, 1) == pytest.approx(common_rate(2, 1))
    for _ in range(EVERY):
        choice.note([0, choice.tree.index((1,)) + 1], 6)
    rates = [choice.rate(1, rank) for rank in range(5)]
    assert rates == sorted(rates, reverse=True)
    assert not choice_of(6, 3).look()


def test_drafts_that_were_cut_are_not_counted() -> None:
    choice = choice_of(6, None)
    before = choice.rate(1, 1)
    for _ in range(50):
        choice.note([0, 1], 1)
    assert choice.rate(1, 1) == pytest.approx(min(before, choice.rate(1, 0)))
