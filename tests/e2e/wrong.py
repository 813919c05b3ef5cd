"""A proposer whose drafts are never accepted."""

from __future__ import annotations

from typing import Any


class Wrong:
    """Drafts the token that the target has just rejected, or written, over and over."""

    def __init__(self, vllm_config: Any) -> None:
        self.num_drafts = vllm_config.speculative_config.num_speculative_tokens

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Return a rare token, which no text of the zoo has twice in a row."""
        return [[1] * self.num_drafts if tokens else [] for tokens in sampled_token_ids]
