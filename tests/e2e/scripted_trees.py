"""Trees of drafts in which the path to one node is right, a node after the other."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

from vllm_ascend_spec.methods.found_trees import FoundTree

# Every node is the end of the accepted path once, and the text is, too.
PARENTS = [-1, 0, 1, -1, 0, 3, 1, 5, -1, 8]
VOCABULARY = 4096


class TreeScript:
    """Drafts such trees for some texts, and nothing for others.

    Args:
        texts: prompts with their answers, as token ids.

    Attributes:
        turn: number of trees so far.
        ended_at: the nodes that a right path has ended at.
    """

    def __init__(self, texts: list[list[int]]) -> None:
        self.texts, self.turn = texts, 0
        self.ended_at: set[int] = set()

    def method(self) -> Any:
        """Return what takes the place of ``NgramDrafter.find_trees``."""
        return partialmethod(_draft, self)

    def draft(self, drafter: Any, step: Any) -> list[list[int]]:
        """Return the drafts of each request; the drafter gets their parents."""
        trees = [self._tree(drafter, step, index) for index in range(len(step.batch.req_ids))]
        drafter._parents = [tree.parents for tree in trees]
        return [tree.tokens for tree in trees]

    def _tree(self, drafter: Any, step: Any, index: int) -> FoundTree:
        end = int(step.batch.num_tokens_no_spec[index])
        known = step.batch.token_ids_cpu[index, :end].tolist()
        text = next((text for text in self.texts if text[:end] == known[: len(text)]), None)
        has_room = end + len(PARENTS) < drafter.max_model_len
        if text is None or not has_room or not step.sampled_token_ids[index]:
            return FoundTree([], [])
        leaf, path = self.turn % (len(PARENTS) + 1) - 1, []
        self.turn += 1
        while leaf >= 0:
            path.append(leaf)
            leaf = PARENTS[leaf]
        right = dict(zip(reversed(path), text[end:], strict=False))
        # The others are wrong: no token follows itself by so much.
        wrong = [(known[-1] + 7 * node + 1) % VOCABULARY for node in range(len(PARENTS))]
        tokens = [right.get(node, wrong[node]) for node in range(len(PARENTS))]
        if path and len(right) == len(path):
            self.ended_at.add(path[0])
        return FoundTree(tokens, list(PARENTS))


def _draft(drafter: Any, script: TreeScript, step: Any) -> list[list[int]]:
    return script.draft(drafter, step)
