"""What a DFlash head needs of vllm-ascend's draft loop, before that in the bases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class ContextFirst:
    """Writes keys and values of the text before the block is run, as vllm-ascend's loop does."""

    model: Any
    draft_model_config: Any
    input_ids: torch.Tensor
    _context_slot_mapping_buffers: torch.Tensor
    _get_positions: Callable[[int], torch.Tensor]
    build_model_inputs_first_pass: Callable[..., None]

    @property
    def wants_aux_hidden_states(self) -> bool:
        """Whether the target is to return the states of inner layers; by its config, as in vLLM."""
        own = getattr(self.draft_model_config.hf_config, "dflash_config", None) or {}
        return bool(own.get("use_aux_hidden_state", True))

    def _run_model(self, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the head on its buffers; return hidden states for logits, twice."""
        self.build_model_inputs_first_pass(num_tokens, self._context_slot_mapping_buffers)
        states = self.model(
            input_ids=self.input_ids[:num_tokens],
            positions=self._get_positions(num_tokens),
            inputs_embeds=None,
        )
        return states, states
