"""Let requests beyond the draft model's context go on without drafts; others keep theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.draft_context import draft_context, may_be_ragged

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.request import Request


class ContextMixin:
    """Mixin for a scheduler of vLLM, which it has to precede in the bases.

    The runner drafts for every request of a batch (``worker/per_request.py``). Drafts beyond the
    context are not verified, except in full graphs, which have K+1 rows for each request.
    """

    vllm_config: VllmConfig
    num_spec_tokens: int
    requests: dict[str, Request]
    running: list[Request]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._draft_context = draft_context(self.vllm_config)
        # K of the engine; while a step is scheduled, vLLM's attribute holds the previous step's K.
        self.max_k = self.num_spec_tokens
        # Most drafts by request id, for requests that get fewer than the others for any reason.
        self._limits: dict[str, int] = {}

    def limit_by_context(self) -> None:
        """Limit the drafts of running requests to the room that the context has for them."""
        if self._draft_context is None or not may_be_ragged(self.vllm_config):
            return
        for request in self.running:
            room = self.room_in_context(request.request_id)
            if room < self._limits.get(request.request_id, self.max_k):
                self._limits[request.request_id] = room

    def room_in_context(self, req_id: str) -> int:
        """Return how many drafts of a request fit into the context, at most K."""
        if self._draft_context is None or req_id not in self.requests:
            return self.max_k
        request = self.requests[req_id]
        # Placeholders are tokens that the steps in flight may produce.
        known = request.num_tokens + request.num_output_placeholders
        return min(self.max_k, max(0, self._draft_context - known))
