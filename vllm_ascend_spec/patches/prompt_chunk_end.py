"""The token after a chunk of a prompt, for heads that read each token beside the state before it.

Why: in chunked prefill the last row of a chunk must read the prompt's next token. vLLM
(vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer.prepare_next_token_ids_padded)
takes the last token of the whole prompt instead, and so does vllm-ascend. What the head then writes
to its KV cache stays there, and drafts are worse.
How: that method gets a batch in which such a request ends with the token after the chunk. Of a
prompt that was given as embeddings no token is known: it would end the engine, and gets zeros.
Until: the method takes that token.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from vllm_ascend_spec.patches.registry import override

if TYPE_CHECKING:
    import torch


@override
class PieceEndOverride:
    """Mixin that must precede our loop and vLLM's or vllm-ascend's proposer in the bases."""

    runner: Any

    def prepare_next_token_ids_padded(
        self,
        sampled_token_ids: torch.Tensor,  # [num_reqs, K+1]
        requests: Any,
        gpu_input_batch: Any,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the last token of each request, which drafting starts from; parameters as in vLLM.

        Returns:
            int32 [num_reqs] each: that token, and how many tokens each request sampled.
        """
        batch = self._without_rest(gpu_input_batch)
        unknown = [
            name
            for name in batch.req_ids
            if getattr(requests[name], "prompt_token_ids", ()) is None
        ]
        if unknown:
            requests = requests | {name: _with_ids(requests[name]) for name in unknown}
        return super().prepare_next_token_ids_padded(  # type: ignore[misc]
            sampled_token_ids, requests, batch, *args, **kwargs
        )

    def _without_rest(self, batch: Any) -> Any:
        """Return a batch in which an unfinished prompt ends one token after what is read."""
        goes_on = self.runner.discard_request_mask.np[: batch.num_reqs]
        if not goes_on.any():
            return batch
        batch = copy.copy(batch)
        ends = batch.num_tokens_no_spec.copy()
        read = self.runner.optimistic_seq_lens_cpu[: batch.num_reqs].numpy()
        ends[: batch.num_reqs] = np.where(goes_on, read + 1, ends[: batch.num_reqs])
        batch.num_tokens_no_spec = ends
        return batch


class UnknownIds:
    """Token ids of a prompt that was given as embeddings: zeros."""

    def __getitem__(self, index: int) -> int:
        return 0


def _with_ids(request: Any) -> Any:
    """Return the state of a request that has a token id for each place of its prompt."""
    request = copy.copy(request)
    request.prompt_token_ids = UnknownIds()
    return request
