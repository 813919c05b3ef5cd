"""Requests whose drafts must not be drawn.

vLLM's scheduler cuts the drafts of a request with structured output off before the first that the
grammar forbids. Were they drawn, how many are verified would depend on the draw: where the draft
likes forbidden tokens, allowed ones would be accepted too rarely. A draft that is certain depends
on the text so far alone, and to cut it off does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.drafter import Runner


def requests_with_grammar(runner: Runner) -> list[int]:
    """Return the indices of the batch's requests with structured output."""
    params = (runner.requests[req_id].sampling_params for req_id in runner.input_batch.req_ids)
    return [i for i, p in enumerate(params) if p is not None and p.structured_outputs is not None]


def make_certain(
    rows: Sequence[int],
    tokens: torch.Tensor,  # [num_rows]
    probs: torch.Tensor,  # [num_rows, vocab_size]
    logits: torch.Tensor,  # [num_rows, vocab_size]
) -> None:
    """Make the drafts of some rows the likeliest tokens, with all the mass on them, in place."""
    if not rows:
        return
    index = torch.tensor(rows, device=logits.device)
    likeliest = logits[index].argmax(dim=-1)
    tokens[index] = likeliest
    probs[index] = 0.0
    probs[index, likeliest] = 1.0


class CertainDraftsMixin:
    """Mix into a subclass of vLLM's ``SpecDecodeBaseProposer``: the same for vLLM's own loop."""

    runner: Runner
    num_speculative_tokens: int
    parallel_drafting: bool

    def _sample_from_logits(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sampling_metadata: SamplingMetadata,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Draw drafts; the signature is vLLM's. With parallel drafting a request has K rows."""
        tokens, probs = super()._sample_from_logits(logits, sampling_metadata)  # type: ignore[misc]
        if probs is not None:
            each = self.num_speculative_tokens if self.parallel_drafting else 1
            rows = [
                each * request + row
                for request in requests_with_grammar(self.runner)
                for row in range(each)
            ]
            make_certain(rows, tokens, probs, logits)
        return tokens, probs
