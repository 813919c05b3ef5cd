"""The base class of patches that change the attention metadata for draft step 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class FirstDraftStepMetadata:
    """Mixin that must precede vLLM's or vllm-ascend's proposer in the bases."""

    def metadata_of_first_step(self, metadata: Any) -> Any:
        """Return the attention metadata to prepare from, without changing the runner's own."""
        raise NotImplementedError

    def set_inputs_first_pass(
        self,
        target_token_ids: torch.Tensor,  # [num_tokens]
        next_token_ids: torch.Tensor,  # [num_reqs]
        target_positions: torch.Tensor,  # [num_tokens]
        target_hidden_states: torch.Tensor,  # [num_tokens, hidden_size]
        token_indices_to_sample: torch.Tensor | None,  # [num_reqs]
        cad: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Prepare draft step 1; the signature is vLLM's and vllm-ascend's."""
        return super().set_inputs_first_pass(  # type: ignore[misc]
            target_token_ids,
            next_token_ids,
            target_positions,
            target_hidden_states,
            token_indices_to_sample,
            self.metadata_of_first_step(cad),
            *args,
            **kwargs,
        )
