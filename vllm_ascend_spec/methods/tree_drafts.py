"""Drafts of a tree of fixed shape, from the likeliest tokens that a draft finds in its passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from vllm_ascend_spec.config.tree_shape import depth_of, parents_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from vllm_ascend_spec.config.tree_shape import Tree


class Pass(NamedTuple):
    """A pass of a draft after its first one: it reads one draft of each request.

    Attributes:
        before: the pass that made that draft; 0 is the first one.
        rank: which of that pass's likeliest tokens it is.
        depth: how many drafts come before it.
    """

    before: int
    rank: int
    depth: int


def chain_of_passes(num_steps: int) -> list[Pass]:
    """Return the passes after the first one of ``num_steps`` that each read the last draft."""
    return [Pass(step - 1, 0, step - 1) for step in range(1, num_steps)]


class TreeDrafts:
    """Collects the likeliest tokens of each pass, and lays them out as a tree.

    Args:
        tree: the paths of the nodes.
        sources: for each node, the pass that finds its token.
        passes: all but the first one.

    Attributes:
        parents: place of each node's parent in the tree; -1 for those that follow the text.
        num_steps: how many drafts follow each other at most.
    """

    def __init__(self, tree: Tree, sources: list[int], passes: list[Pass]) -> None:
        self.parents = parents_of(tree)
        self.num_steps = depth_of(tree)
        self.passes = passes
        self._nodes = [(source, path[-1]) for source, path in zip(sources, tree, strict=True)]
        self._widths = [1] * (len(passes) + 1)
        for source, rank in self._nodes:
            self._widths[source] = max(self._widths[source], rank + 1)
        self._found: list[torch.Tensor] = []

    @classmethod
    def by_node(cls, tree: Tree) -> Self:
        """Let a pass read each node that others follow, for drafts that read what they drafted.

        The order is that of a depth-first walk. So the keys that a pass writes are still there when
        a node after it is read, although siblings have the same place in the KV cache.
        """
        inner = sorted({path[:-1] for path in tree})  # from (), the text's end, on
        place = {path: index for index, path in enumerate(inner)}
        passes = [Pass(place[path[:-1]], path[-1], len(path) - 1) for path in inner[1:]]
        return cls(tree, [place[path[:-1]] for path in tree], passes)

    @classmethod
    def by_depth(cls, tree: Tree) -> Self:
        """Let one pass find all nodes of a depth, for drafts that do not read what they drafted."""
        sources = [len(path) - 1 for path in tree]
        return cls(tree, sources, chain_of_passes(depth_of(tree)))

    def take(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> torch.Tensor:
        """Note the likeliest tokens of the next pass, int64 [num_reqs, width], and return them."""
        ranked = logits.topk(self._widths[len(self._found)], dim=-1).indices
        self._found.append(ranked)
        return ranked

    def token_of(self, each: Pass) -> torch.Tensor:
        """Return the drafts that a pass reads, int64 [num_reqs]."""
        return self._found[each.before][:, each.rank]

    def lay_out(self) -> torch.Tensor:
        """Return the drafts of the passes since the last call, int64 [num_reqs, num_nodes]."""
        found, self._found = self._found, []
        return torch.stack([found[source][:, rank] for source, rank in self._nodes], dim=1)
