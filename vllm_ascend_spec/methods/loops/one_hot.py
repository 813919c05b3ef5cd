"""Requests whose drafts must not be sampled, or not by vLLM's own loop.

vLLM's scheduler truncates the drafts of a request with structured output before the first token
that the grammar forbids. With sampled drafts, the number of verified drafts would depend on the
sample: if the draft favours forbidden tokens, the token rule and the block rule would accept
allowed ones too rarely. A greedy draft depends only on the text so far, so truncating it does no
harm. A request with a seed has the target's sample as its output, whatever is truncated.

vLLM's own loop does not sample with the verifier's noise. The verifier's sample of a request with a
seed is the likeliest token more often than it is another sample.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch

from vllm_ascend_spec.ops.send import send_list

if TYPE_CHECKING:
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.drafter import Runner


def requests_with_grammar(runner: Runner) -> list[int]:
    """Return the batch indices of requests with structured output."""
    params = (runner.requests[req_id].sampling_params for req_id in runner.input_batch.req_ids)
    return [i for i, p in enumerate(params) if p is not None and p.structured_outputs is not None]


def requests_with_seed(runner: Runner, sampling: SamplingMetadata) -> Collection[int]:
    """Return the batch indices of requests with a seed, perhaps one that they did not ask for."""
    noise = runner.noise_of_drafts
    if noise is not None and noise.unseeded is None:
        return range(noise.seeds.shape[0])
    return sampling.generators


def make_one_hot(
    rows: torch.Tensor | None,  # [num_chosen]
    tokens: torch.Tensor,  # [num_rows]
    probs: torch.Tensor,  # [num_rows, vocab_size]
    logits: torch.Tensor,  # [num_rows, vocab_size]
) -> None:
    """Set the drafts of some rows to the argmax, with one-hot distributions, in place.

    Args:
        rows: int64, which rows; None for none.
        tokens: the drafts.
        probs: their distributions.
        logits: of the draft.
    """
    if rows is None:
        return
    argmax = logits[rows].argmax(dim=-1)
    tokens[rows] = argmax
    probs[rows] = 0.0
    probs[rows, argmax] = 1.0


def rows_of(
    requests: Collection[int], device: torch.device, rows_each: int = 1
) -> torch.Tensor | None:
    """Return the rows of some requests, int64 [len(requests) · rows_each]; None for none."""
    rows = [rows_each * request + row for request in requests for row in range(rows_each)]
    return send_list(rows, torch.int64, device) if rows else None


class OneHotDraftsMixin:
    """Mixin for vLLM's ``SpecDecodeBaseProposer``: makes both kinds greedy in vLLM's own loop."""

    runner: Runner

    def _sample_from_logits(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sampling_metadata: SamplingMetadata,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Sample drafts; the signature is vLLM's. A request may have several rows."""
        tokens, probs = super()._sample_from_logits(logits, sampling_metadata)  # type: ignore[misc]
        if probs is not None:
            each = logits.shape[0] // max(len(self.runner.input_batch.req_ids), 1)
            seeded = requests_with_seed(self.runner, sampling_metadata)
            requests = {*requests_with_grammar(self.runner), *seeded}
            make_one_hot(rows_of(requests, logits.device, each), tokens, probs, logits)
        return tokens, probs
