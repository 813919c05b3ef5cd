"""Arctic-inference's suffix trees, with less work in each step of an engine.

Adding a token costs about as much as a look-up: it extends every suffix that it continues, in the
request's own tree and in one common to all requests. Each visit of a tree starts with a cold cache,
because the target's pass used it in between. So an answer enters the common tree in pieces, not
token by token, and that tree is skipped if the request's own text gives the best possible draft.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from arctic_inference.suffix_decoding import SuffixDecodingCache

# Other requests may lag behind a running request's answer by up to this many tokens.
PIECE = 64


class Trees(SuffixDecodingCache):
    """Suffix trees in which a request sees its own text at once, and that of others with a delay.

    A new request finds everything that was written before it began.

    Args:
        max_tree_depth: maximum number of tokens of a match and its draft together.
        max_cached_requests: maximum number of answers in the common tree, or -1 for any number.
    """

    def __init__(self, max_tree_depth: int, max_cached_requests: int) -> None:
        super().__init__(max_tree_depth, max_cached_requests)
        # Tokens not yet in the common tree, by running request whose answer is kept.
        self._waiting: dict[Hashable, list[int]] = {}

    def start_request(self, req_id: Hashable, prompt_token_ids: Sequence[int]) -> None:
        """Open a tree for a request, with its prompt."""
        for other in self._waiting:
            self._share(other)
        super().start_request(req_id, prompt_token_ids)
        if req_id in self.cached_requests:
            self._waiting[req_id] = []

    def add_active_response(self, req_id: Hashable, token_ids: Sequence[int]) -> None:
        """Add the tokens that a request has written since the last call."""
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
        self,
        req_id: Hashable,
        context: Sequence[int],
        longest: int,
        factor: float,
        least: float,
        *,
        is_tree: bool = False,
    ) -> Any:
        """Return the better draft of both trees; if they are equal, that of the request's own tree.

        Args:
            req_id: the request.
            context: the last tokens of its text, at most as many as the trees are deep.
            longest: maximum number of tokens in a draft.
            factor: maximum number of draft tokens for each matched token.
            least: minimum probability of a draft token.
            is_tree: whether drafts may follow the same token.

        Returns:
            Arctic-inference's native draft: ``token_ids``, ``parents``, ``probs``, ``score``,
            ``match_len``.
        """
        arguments = (context, longest, factor, 0.0, least, is_tree)
        own = self._local_trees[req_id].speculate(*arguments)
        # A score is the sum of the tokens' probabilities, so it cannot exceed this.
        if own.score >= longest or not self.cached_requests:
            return own
        common = self._global_tree.speculate(*arguments)
        return own if own.score >= common.score else common

    def _share(self, req_id: Hashable) -> None:
        """Move a request's waiting tokens into the common tree."""
        if waiting := self._waiting.get(req_id):
            self._global_tree.extend(self._req_to_seq_id[req_id], waiting)
            waiting.clear()
