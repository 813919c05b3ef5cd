"""Requests with a seed keep their drafts while they are preempted, so that their text repeats.

vLLM drops a request's drafts when it preempts it, and computes all its tokens in one step when it
goes on: that step samples without drafts, which takes other random numbers than a verification.
Here the last token waits for a step of its own, which verifies the drafts that were kept. The
worker keeps their distributions (``worker/kept_probs.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_ascend_spec.upstream.scheduler import PromptHooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


class Kept(NamedTuple):
    """Drafts of a request that was preempted.

    Attributes:
        num_tokens: how long the text was that they go on from.
        drafts: token ids.
    """

    num_tokens: int
    drafts: list[int]


class KeptDraftsMixin(PromptHooks):
    """Mix into a scheduler of vLLM's, before it in the bases.

    Not where steps are scheduled ahead: the scheduler does not know the drafts then. Nor where vLLM
    has no place to hold a prompt's last token back (0.23).
    """

    requests: dict[str, Request]
    running: list[Request]
    block_size: int
    kv_cache_manager: Any
    need_mamba_block_aligned_split: bool
    num_prefill_lookahead: int
    scheduler_config: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[str, Kept] = {}
        # Drafts that a step which is being scheduled may have taken already.
        self._taken: dict[str, Sequence[int]] = {}

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Schedule a step; the signature is vLLM's."""
        self._give_back()
        keeping = filter(self._keeps, self.running)
        self._taken = {request.request_id: request.spec_token_ids for request in keeping}
        try:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            self._taken = {}

    def _give_back(self) -> None:
        """Let requests that have all but their last token computed go on with their drafts."""
        for req_id, (num_tokens, drafts) in list(self._kept.items()):
            request = self.requests.get(req_id)
            if request is None or request.num_tokens != num_tokens:
                del self._kept[req_id]
            elif request.num_computed_tokens == num_tokens - 1:
                request.spec_token_ids = drafts
                del self._kept[req_id]

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Preempt a request, and keep its drafts; the signature is vLLM's."""
        drafts = request.spec_token_ids or self._taken.get(request.request_id)
        if drafts and self._keeps(request):
            self._kept[request.request_id] = Kept(request.num_tokens, list(drafts))
        super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]

    def shorten_hit(self, request: Request, blocks: Any, num_tokens: int) -> tuple[Any, int]:
        """Return what the prefix cache has; not all but the last token where drafts are kept."""
        is_whole = num_tokens == request.num_tokens - 1 and num_tokens % self.block_size == 0
        if request.request_id in self._kept and num_tokens and is_whole:
            num_tokens -= self.block_size
            blocks = self.kv_cache_manager.truncate_computed_blocks(blocks, num_tokens)
        return blocks, num_tokens

    def shorten_read(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Leave the last token of a request with kept drafts to a later step."""
        is_last = num_computed_tokens + num_new_tokens == request.num_tokens
        return num_new_tokens - (
            request.request_id in self._kept and is_last and num_new_tokens > 1
        )

    def _keeps(self, request: Request) -> bool:
        """Tell whether a request has to keep its drafts, and can."""
        if not self.holds_back or not has_seed(request):
            return False
        # Where blocks or layers bind a prompt's parts, none of one token may be left.
        is_bound = self.need_mamba_block_aligned_split or self.num_prefill_lookahead > 1
        return not (self.scheduler_config.async_scheduling or is_bound)


def has_seed(request: Request) -> bool:
    """Tell whether a request's tokens are drawn from random numbers of its own."""
    params = request.sampling_params
    return params is not None and params.seed is not None and params.temperature > 0
