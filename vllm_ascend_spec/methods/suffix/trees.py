"""Arctic-inference's suffix trees, with less work in each step of an engine.

A token costs about as much as a look-up: it goes into every suffix that it continues, in a tree of
its request and in one that all requests share. Each visit of a tree begins with a cold cache, since
the target's pass has used it in between. So the common tree takes up an answer piece by piece, not
token by token, and is not asked where the request's own text already gives the best draft there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from arctic_inference.suffix_decoding import SuffixDecodingCache

# By as many tokens other requests may not see the answer of one that runs. Its own tree has them.
PIECE = 64


class Trees(SuffixDecodingCache):
    """What a request may look up: its own text at once, that of others with a delay.

    A new request finds everything that was written before it began.

    Args:
        max_tree_depth: tokens of a match and its draft together.
        max_cached_requests: answers in the common tree, or -1 for any number.
    """

    def __init__(self, max_tree_depth: int, max_cached_requests: int) -> None:
        super().__init__(max_tree_depth, max_cached_requests)
        # Of the running requests whose answers are kept.
        self._waiting: dict[Hashable, list[int]] = {}

    def start_request(self, req_id: Hashable, prompt_token_ids: Sequence[int]) -> None:
        """Open a tree for a request, with its prompt."""
        for other in self._waiting:
            self._share(other)
        super().start_request(req_id, prompt_token_ids)
        if req_id in self.cached_requests:
            self._waiting[req_id] = []

    def add_active_response(self, req_id: Hashable, token_ids: Sequence[int]) -> None:
        """Take up what a request has written since."""
        self._local_trees[req_id].extend(0, token_ids)
        waiting = self._waiting.get(req_id)
        if waiting is not None:
            waiting += token_ids
            if len(waiting) >= PIECE:
                self._share(req_id)

    def stop_request(self, req_id: Hashable) -> None:
        """Forget a request's prompt; its answer stays in the common tree."""
        self._share(req_id)
        self._waiting.pop(req_id, None)
        super().stop_request(req_id)

    def evict_cached_response(self, req_id: Hashable) -> None:
        """Take a request's answer out of the common tree."""
        self._waiting.pop(req_id, None)
        super().evict_cached_response(req_id)

    def forget(self) -> None:
        """Take all answers out of the common tree, those of running requests too."""
        for req_id in list(self.cached_requests):
            self.evict_cached_response(req_id)

    def look_up(
        self, req_id: Hashable, context: Sequence[int], longest: int, factor: float, least: float
    ) -> Any:
        """Return the better draft of both trees, the request's own where they are equal.

        Args:
            req_id: the request.
            context: the last tokens of its text, no more than the trees are deep.
            longest: how many tokens a draft may have.
            factor: how many tokens it may have for each token of its match.
            least: chance of the least likely token of a draft.

        Returns:
            Arctic-inference's native draft: ``token_ids``, ``probs``, ``score``, ``match_len``.
        """
        arguments = (context, longest, factor, 0.0, least, False)
        own = self._local_trees[req_id].speculate(*arguments)
        # A score adds up the chances of the tokens, so no draft has a higher one.
        if own.score >= longest or not self.cached_requests:
            return own
        common = self._global_tree.speculate(*arguments)
        return own if own.score >= common.score else common

    def _share(self, req_id: Hashable) -> None:
        """Put what waits of a request into the common tree."""
        if waiting := self._waiting.get(req_id):
            self._global_tree.extend(self._req_to_seq_id[req_id], waiting)
            waiting.clear()
