"""Keep the drafts of preempted requests with a seed, so that their text is reproducible.

vLLM drops a request's drafts when it preempts it, and recomputes all its tokens in one step when it
resumes. That step samples without drafts, which uses other random numbers than verification. Here
the last token is left to a step of its own, which verifies the kept drafts. The worker keeps their
distributions (``worker/kept_probs.py``).
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
        num_tokens: number of tokens that the drafts continue.
        drafts: token ids.
    """

    num_tokens: int
    drafts: list[int]


class KeptDraftsMixin(PromptHooks):
    """Mixin for a scheduler of vLLM, which it has to precede in the bases.

    It keeps nothing with async scheduling, where the scheduler does not know the drafts, nor where
    vLLM has no place to hold back a prompt's last token (0.23).
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
        # Drafts that the step being scheduled may have taken from their requests already.
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
        """Return the kept drafts to requests that have all but their last token computed."""
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
        """Shorten a prefix cache hit if drafts are kept and it leaves only the last token."""
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
        # Mamba block alignment and prefill lookahead do not allow a last chunk of one token.
        is_bound = self.need_mamba_block_aligned_split or self.num_prefill_lookahead > 1
        return not (self.scheduler_config.async_scheduling or is_bound)


def has_seed(request: Request) -> bool:
    """Tell whether a request samples its tokens by a seed of its own."""
    params = request.sampling_params
    return params is not None and params.seed is not None and params.temperature > 0
