"""Drafts of a tree of fixed shape, from the likeliest tokens of each draft step."""

from __future__ import annotations

import torch

from vllm_ascend_spec.config.tree_shape import Tree, parents_of


class TreeDrafts:
    """Collects the likeliest tokens of each draft step, and lays them out as a tree.

    A step's tokens belong to its depth: a draft after a sibling is the same as after the likeliest
    token. Methods whose steps read the tokens before them have no such nodes.

    Args:
        tree: the paths of the nodes.
    """

    def __init__(self, tree: Tree) -> None:
        self.parents = parents_of(tree)
        self.num_steps = max(map(len, tree))
        self._nodes = [(len(path) - 1, path[-1]) for path in tree]
        self._widths = [0] * self.num_steps
        for step, rank in self._nodes:
            self._widths[step] = max(self._widths[step], rank + 1)
        self._steps: list[torch.Tensor] = []

    def take(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> torch.Tensor:
        """Note the likeliest tokens of the next step; return the likeliest, int64 [num_reqs]."""
        width = max(self._widths[len(self._steps)], 1)
        ranked = logits.topk(width, dim=-1).indices
        self._steps.append(ranked)
        return ranked[:, 0]

    def lay_out(self) -> torch.Tensor:
        """Return the drafts of the steps since the last call, int64 [num_reqs, num_nodes].

        A single step that only keeps a KV cache up to date makes some of them, which nobody reads.
        """
        steps, self._steps = self._steps, []
        made = [node for node in self._nodes if node[0] < len(steps)]
        return torch.stack([steps[step][:, rank] for step, rank in made], dim=1)
