"""The part of a drafter that makes trees of one shape for all requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.methods.tree_choice import TreeChoice, choice_of
from vllm_ascend_spec.methods.tree_drafts import TreeDrafts

if TYPE_CHECKING:
    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.config.tree_shape import Tree


class DraftsTreesMixin:
    """Mixin for drafters; :meth:`set_up_tree` turns it on.

    Attributes:
        tree: lays the drafts out as a tree; None for chains.
    """

    runner: Any
    tree: TreeDrafts | None = None
    _choice: TreeChoice | None = None
    _make_tree: Callable[[Tree], TreeDrafts]

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
        self._make_tree = make
        self.tree = make(asked.tree)
        if asked.shapes_tree:
            self._choice = choice_of(len(asked.tree), deepest)

    def take_parents(self) -> list[list[int]] | None:
        """Return how the last drafts of each request hang together; None for chains."""
        if self.tree is None:
            return None
        return [self.tree.parents] * self.runner.input_batch.num_reqs

    def learn_tree(self, parents: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> None:
        """Note what was accepted, and take another shape if it is worth more now.

        Args:
            parents: of each request's verified drafts.
            rows: of each request's accepted path: 0, then node + 1 for each accepted node.
        """
        if self._choice is None or self.tree is None:
            return
        for own, path in zip(parents, rows, strict=True):
            # Those of an earlier shape may still be under way.
            if own and list(own) == self.tree.parents[: len(own)]:
                self._choice.note(path, len(own))
        if self._choice.look():
            self.tree = self._make_tree(self._choice.tree)
