"""A proposer of one's own, for method ``custom_class``.

    PYTHONPATH=examples vllm serve examples/zoo/target --dtype float32 \
      --enforce-eager --kv-cache-memory-bytes 256M --speculative-config \
      '{"method": "custom_class", "model": "custom_proposer.RecentFollower",
        "num_speculative_tokens": 3}'

Whatever it drafts, the text stays the target's: wrong drafts cost time, nothing else.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np


class RecentFollower:
    """Drafts, token after token, what followed the same token last time in this request.

    Args:
        vllm_config: the engine's configuration; vLLM gives nothing else.
    """

    def __init__(self, vllm_config: Any) -> None:
        self.num_drafts = vllm_config.speculative_config.num_speculative_tokens

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,  # [max_num_reqs]
        token_ids_cpu: np.ndarray,  # [max_num_reqs, max_model_len]
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Draft for every request of the batch.

        Args:
            sampled_token_ids: this step's tokens by request; none while its prompt is unfinished.
            num_tokens_no_spec: how many tokens each request has, this step's included.
            token_ids_cpu: the tokens.
            slot_mappings: where the keys and values lie; of no use without a model.

        Returns:
            Up to ``num_speculative_tokens`` token ids for each request.
        """
        return [
            self.follow(token_ids_cpu[request, : num_tokens_no_spec[request]].tolist())
            if sampled
            else []
            for request, sampled in enumerate(sampled_token_ids)
        ]

    def follow(self, tokens: list[int]) -> list[int]:
        """Return the drafts after ``tokens``."""
        follower = dict(pairwise(tokens))  # the last one wins
        drafts: list[int] = []
        token = tokens[-1]
        while len(drafts) < self.num_drafts and token in follower:
            token = follower[token]
            drafts.append(token)
        return drafts
