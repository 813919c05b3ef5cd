"""An engine whose requests are lists of tokens, for drafters that follow them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.methods.engine import make_batch, make_config, make_engine, make_step
from vllm_ascend_spec.methods.suffix.drafter import SuffixDrafter

OPTIONS = {
    "suffix_decoding_max_tree_depth": 24,
    "suffix_decoding_max_cached_requests": 100,
    "suffix_decoding_max_spec_factor": 1.0,
    "suffix_decoding_min_token_prob": 0.1,
}
GREEDY = SimpleNamespace(seed=None, temperature=0.0)
SEEDED = SimpleNamespace(seed=7, temperature=0.8)


class Requests:
    """The requests of a fake for vLLM's runner."""

    def __init__(self, **options: Any) -> None:
        self.runner = SimpleNamespace(requests={})
        config = make_config(5, **{**OPTIONS, **options})
        self.drafter = SuffixDrafter.create(make_engine(config, self.runner))
        self.texts: dict[str, list[int]] = {}
        self.prompts: dict[str, int] = {}

    def start(self, req_id: str, prompt: list[int], params: Any = GREEDY) -> None:
        """Let a request come in, a new one even if there is one of its id."""
        self.runner.requests[req_id] = SimpleNamespace(sampling_params=params)
        self.texts[req_id], self.prompts[req_id] = list(prompt), len(prompt)

    def finish(self, *req_ids: str) -> None:
        """Let requests end, by themselves or because they are aborted."""
        for req_id in req_ids:
            del self.runner.requests[req_id]

    def step(self, num_drafts: int = 5, *, in_batch: bool = True, **written: list[int]) -> Any:
        """Return the step that wrote these tokens; no tokens where a prompt goes on.

        Args:
            num_drafts: K.
            in_batch: whether the batch has the tokens already.
            written: the tokens by request.
        """
        before = {req_id: list(self.texts[req_id]) for req_id in written}
        for req_id, tokens in written.items():
            self.texts[req_id] += tokens
        shown = self.texts if in_batch else before
        batch = make_batch(*(shown[req_id] for req_id in written))
        batch.req_ids = list(written)
        batch.num_prompt_tokens = [self.prompts[req_id] for req_id in written]
        return make_step(
            batch,
            num_drafts=num_drafts,
            batch_has_sampled=in_batch,
            tokens_on_host=lambda: list(written.values()),
        )

    def draft(self, *args: Any, **written: Any) -> list[list[int]]:
        """Run a step and return the drafts by request."""
        return self.drafter.draft(self.step(*args, **written))
