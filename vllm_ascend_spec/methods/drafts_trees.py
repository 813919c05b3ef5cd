"""The part of a drafter that makes trees of one shape for all requests.

A step's K says how large: up to the length of the principal chain K drafts are a chain, and more
are so many nodes of the tree. Any prefix of its nodes is a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.tree_shape import parents_of
from vllm_ascend_spec.methods.tree_choice import TreeChoice, choice_of
from vllm_ascend_spec.methods.tree_drafts import TreeDrafts

if TYPE_CHECKING:
    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.config.tree_shape import Tree


class DraftsTreesMixin:
    """Mixin for drafters; :meth:`set_up_tree` turns it on.

    Attributes:
        num_drafts: K of the step that is drafted now.
        tree: lays its drafts out as a tree; None for chains.
    """

    runner: Any
    num_drafts: int
    tree: TreeDrafts | None = None
    _choice: TreeChoice | None = None
    _first_choice: Callable[[], TreeChoice]
    _make_tree: Callable[[Tree], TreeDrafts]
    _shape: Tree | None = None
    _parents: list[int]
    _longest_chain: int
    _by_size: dict[int, TreeDrafts]

    def set_up_tree(
        self, asked: SpecConfig, make: Callable[[Tree], TreeDrafts], deepest: int | None = None
    ) -> None:
        """Draft trees if the user asked for them.

        Args:
            asked: the resolved speculation.
            make: makes the drafts of a tree.
            deepest: most drafts one after another; None for any number.
        """
        if asked.tree is None:
            return
        self._make_tree, self._longest_chain = make, asked.longest_chain
        self._take_shape(asked.tree)
        if asked.shapes_tree:
            self._first_choice = partial(choice_of, len(asked.tree), deepest)
            self._choice = self._first_choice()
        self.num_steps(asked.max_k)

    def _take_shape(self, tree: Tree) -> None:
        self._shape, self._parents, self._by_size = tree, parents_of(tree), {}

    def num_steps(self, k: int) -> int:
        """Get ready to make ``k`` drafts, and return how many of them follow each other."""
        self.num_drafts, self.tree = k, self._tree_of(k)
        return k if self.tree is None else self.tree.num_steps

    def _tree_of(self, k: int) -> TreeDrafts | None:
        """Return the tree of the first ``k`` nodes; None for a chain."""
        if self._shape is None or k <= self._longest_chain:
            return None
        if k not in self._by_size:
            self._by_size[k] = self._make_tree(self._shape[:k])
        return self._by_size[k]

    def take_parents(self) -> list[list[int]] | None:
        """Return how the last drafts of each request hang together, nothing for a chain's.

        Returns:
            None if no drafts are trees.
        """
        if self._shape is None:
            return None
        parents = [] if self.tree is None else self.tree.parents
        return [parents] * self.runner.input_batch.num_reqs

    def learn_tree(self, parents: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> None:
        """Note what was accepted, and take another shape if it is worth more now.

        Args:
            parents: of each request's verified drafts.
            rows: of each request's accepted path: 0, then node + 1 for each accepted node.
        """
        if self._choice is None:
            return
        for own, path in zip(parents, rows, strict=True):
            # Those of an earlier shape may still be under way.
            if own and list(own) == self._parents[: len(own)]:
                self._choice.note(path, len(own))
        if self._choice.look():
            self._take_shape(self._choice.tree)

    def forget(self) -> None:
        """Forget what was accepted, as after an engine start."""
        if self._choice is not None:
            self._choice = self._first_choice()
            self._take_shape(self._choice.tree)
