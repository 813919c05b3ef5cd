"""The drafter of method ``suffix``, based on the suffix trees of arctic-inference.

vLLM's proposer (``SuffixDecodingProposer``) forgets a request's output whenever the request is not
in the batch, confuses requests that share an id, and drafts with the same K in every step. Here a
request is tracked until it ends, and K may change from step to step.

One tree keeps the answers of all requests (trees.py), so a request's drafts depend on earlier
requests. Its text does not: see ``ops/verify_seeded/`` for requests with a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer

from vllm_ascend_spec.methods.drafter import HostDrafter
from vllm_ascend_spec.methods.found_trees import NOTHING, FindsTreesMixin, principal_first
from vllm_ascend_spec.methods.suffix.trees import Trees

if TYPE_CHECKING:
    from typing_extensions import Self

    from vllm_ascend_spec.methods.drafter import DrafterContext, Runner
    from vllm_ascend_spec.methods.step import DraftStep

# arctic-inference's draft, with token_ids, probs, score, match_len and others.
Found = Any


@dataclass
class Followed:
    """A request whose text is in the trees.

    Attributes:
        state: vLLM's state of the request; a later request with the same id has another one.
        num_tokens: number of tokens of the text in the trees.
        tail: the last of these tokens, at most as many as the trees are deep.
        notes: data that a drafter with an additional model keeps about the request.
    """

    state: Any
    num_tokens: int
    tail: list[int]
    notes: Any = None


class SuffixDrafter(FindsTreesMixin, HostDrafter, SuffixDecodingProposer):
    """vLLM's suffix proposer with our own tracking of requests, on every device."""

    runner: Runner
    suffix_cache: Trees
    max_tree_depth: int
    max_spec_factor: float
    min_token_prob: float
    max_model_len: int

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine."""
        drafter = cls(engine.vllm_config)
        drafter.runner = engine.runner
        drafter.finds_trees = engine.speculation.has_trees
        return drafter

    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        most = vllm_config.speculative_config.suffix_decoding_max_cached_requests
        self.suffix_cache = Trees(self.max_tree_depth, most)
        self.followed: dict[str, Followed] = {}

    def draft(self, step: DraftStep) -> list[list[int]]:
        """Look up drafts for every request that has finished prefill."""
        found = self.look_up(step, step.tokens_on_host())
        if self.finds_trees:
            trees = [
                NOTHING if one is None else principal_first(one.token_ids, one.parents)
                for one in found
            ]
            return self.hand_over(trees)
        return [[] if one is None else one.token_ids for one in found]

    def look_up(self, step: DraftStep, tokens: list[list[int]]) -> list[Found | None]:
        """Add the tokens of a step to the trees and look up what may follow them.

        Args:
            step: the step.
            tokens: the tokens that it sampled, by request.

        Returns:
            For every request in the batch the draft found, which may have no tokens; None if the
            request is still in prefill or must not get drafts.
        """
        self._forget_finished()
        ends = step.batch.num_tokens_no_spec[: len(tokens)].tolist()
        return [
            self._look_up(step, i, end, new) if new else None
            for i, (end, new) in enumerate(zip(ends, tokens, strict=True))
        ]

    def _look_up(self, step: DraftStep, index: int, end: int, sampled: list[int]) -> Found | None:
        """Do this for one request; its text in the batch ends at ``end``."""
        followed = self._follow(step.batch, index)
        later = [] if step.batch_has_sampled else sampled
        if end + len(later) == followed.num_tokens + len(sampled):
            new = sampled
        else:  # There were steps in which nothing drafted.
            new = step.batch.token_ids_cpu[index, followed.num_tokens : end].tolist() + later
        req_id = step.batch.req_ids[index]
        self.suffix_cache.add_active_response(req_id, new)
        followed.num_tokens += len(new)
        followed.tail += new
        del followed.tail[: -self.max_tree_depth]
        longest = min(step.k, self.max_model_len - followed.num_tokens - 1)
        if longest < 1:
            return None
        return self.suffix_cache.look_up(
            req_id,
            followed.tail,
            longest,
            self.max_spec_factor,
            self.min_token_prob,
            is_tree=self.finds_trees,
        )

    def _follow(self, batch: Any, index: int) -> Followed:
        """Return the tracked request; start tracking a new one, with its prompt."""
        req_id = batch.req_ids[index]
        if (followed := self.followed.get(req_id)) is not None:
            return followed
        state = self.runner.requests[req_id]
        num_tokens = int(batch.num_prompt_tokens[index])
        prompt = batch.token_ids_cpu[index, :num_tokens].tolist()
        # This drops an earlier answer with the same id.
        self.suffix_cache.start_request(req_id, prompt)
        self.followed[req_id] = Followed(state, num_tokens, prompt[-self.max_tree_depth :])
        return self.followed[req_id]

    def forget_answers(self) -> None:
        """Forget all answers, as after an engine start."""
        self.suffix_cache.forget()

    def _forget_finished(self) -> None:
        """Stop tracking requests that ended; their answers stay in the common tree."""
        for req_id, followed in list(self.followed.items()):
            if self.runner.requests.get(req_id) is not followed.state:
                self.suffix_cache.stop_request(req_id)
                del self.followed[req_id]


def samples(params: Any) -> bool:
    """Tell whether a request samples at all; a pooling request has no parameters."""
    return params is not None and params.temperature > 0
