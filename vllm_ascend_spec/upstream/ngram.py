"""How vLLM's n-gram proposer is called: since 0.30 K is an argument of its methods."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from vllm.v1.spec_decode.ngram_proposer import NgramProposer

from vllm_ascend_spec.upstream.ranges import vllm_is

if TYPE_CHECKING:
    import numpy as np


class SearchingProposer(NgramProposer):
    """vLLM's proposer, but :meth:`search_each` does the search."""

    if vllm_is(">=0.30"):

        def batch_propose(
            self,
            num_requests: int,
            valid_ngram_requests: Collection[int],
            num_tokens_no_spec: np.ndarray,  # [max_num_reqs]
            token_ids_cpu: np.ndarray,  # [max_num_reqs, max_model_len]
            k: int,
        ) -> list[list[int]]:
            """Search for every request that wants drafts; the signature is vLLM's."""
            return self.search_each(
                num_requests, valid_ngram_requests, num_tokens_no_spec, token_ids_cpu, k
            )

    else:

        def batch_propose(  # type: ignore[misc]
            self,
            num_requests: int,
            valid_ngram_requests: Collection[int],
            num_tokens_no_spec: np.ndarray,  # [max_num_reqs]
            token_ids_cpu: np.ndarray,  # [max_num_reqs, max_model_len]
        ) -> list[list[int]]:
            """Search for every request that wants drafts; the signature is vLLM's."""
            return self.search_each(
                num_requests, valid_ngram_requests, num_tokens_no_spec, token_ids_cpu, self.k
            )

    def look_up(
        self,
        k: int,
        sampled_token_ids: Any,
        num_tokens: np.ndarray,  # [max_num_reqs]
        token_ids: np.ndarray,  # [max_num_reqs, max_model_len]
    ) -> list[list[int]]:
        """Return up to ``k`` drafts for each request that has sampled a token."""
        if vllm_is(">=0.30"):
            return self.propose(k, sampled_token_ids, num_tokens, token_ids)
        else:
            return self.propose(sampled_token_ids, num_tokens, token_ids)

    def search_each(
        self,
        num_requests: int,
        wanted: Collection[int],
        num_tokens: np.ndarray,  # [max_num_reqs]
        token_ids: np.ndarray,  # [max_num_reqs, max_model_len]
        k: int,
    ) -> list[list[int]]:
        """Return up to ``k`` drafts for each wanted request and none for the others."""
        raise NotImplementedError
