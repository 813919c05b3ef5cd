"""What a draft loop of vLLM's family needs from its draft steps, however the draft is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.sample.metadata import SamplingMetadata


class FirstStep(NamedTuple):
    """The inputs of draft step 1.

    Attributes:
        token_ids: int32 [num_tokens].
        positions: int64 [num_tokens], or [3, num_tokens] with M-RoPE.
        hidden: [num_tokens, hidden_size], states of the target; None if the draft reads none.
        rows: int32 or int64 [num_reqs], the row of each request that yields its first draft; in
            parallel drafting [num_reqs * rows of each].
        metadata: attention metadata of these tokens; the steps may change it.
        num_rejected: int32 [num_reqs], number of rejected tokens at the end of each request, or
            None.
        images: vLLM's embeddings of images among these tokens and where they are, or None.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    hidden: torch.Tensor | None
    rows: torch.Tensor
    metadata: CommonAttentionMetadata
    num_rejected: torch.Tensor | None
    images: Any = None

    @property
    def tokens(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Token ids, positions and hidden states."""
        return self.token_ids, self.positions, self.hidden


class DraftSteps(Protocol):
    """One way to call the draft: through its modules, or its kernels directly."""

    def forward(self, first: FirstStep) -> tuple[torch.Tensor, torch.Tensor]:
        """Run draft step 1 and update the draft's KV cache.

        Returns:
            Hidden states for logits and for the next step, [num_tokens, hidden_size] each.
        """

    def draft(self, k: int, first: FirstStep, sampling: SamplingMetadata) -> torch.Tensor:
        """Run draft steps 1 to ``k``; with 0 only keep the draft's KV cache up to date.

        Returns:
            Draft token ids, int64 [num_reqs, k].
        """

    def argmax(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
    ) -> torch.Tensor:
        """Return the argmax token of each request, int64 [num_reqs]."""
