"""``min_tokens`` where the host does not know yet how long an answer is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from vllm.v1.sample.logits_processor import MinTokensLogitsProcessor

from vllm_ascend_spec.verification.thinking import UNKNOWN


class KnownTokens(Sequence[int]):
    """An answer without the places at its end that are kept for tokens not known yet.

    Args:
        tokens: vLLM's list of the answer, which it changes.
    """

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        known = len(self.tokens)
        while known and self.tokens[known - 1] == UNKNOWN:
            known -= 1
        return known

    def __getitem__(self, index: Any) -> Any:
        return self.tokens[: len(self)][index]


class MinTokens(MinTokensLogitsProcessor):
    """vLLM's processor, which forgets a request only when enough of its tokens are known.

    With asynchronous scheduling vLLM keeps a place for each draft as if all were accepted
    (vllm/v1/worker/gpu_model_runner.py:GPUModelRunner._update_states).
    """

    @staticmethod
    def add_request(params: Any, _: Any, output_tok_ids: list[int]) -> Any:
        """Return what is known of a request; None without a limit; parameters are vLLM's."""
        return MinTokensLogitsProcessor.add_request(params, _, KnownTokens(output_tok_ids))

    def apply(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> torch.Tensor:
        """Forbid stop tokens in a step without drafts; by now the last step's tokens are known."""
        self.update_state(None)
        return super().apply(logits)
