"""Order of a DFlash head's KV cache writes in our draft loop on an NPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class ContextFirst:
    """Writes keys and values of the text before running the block, as vllm-ascend's loop does."""

    model: Any
    input_ids: torch.Tensor
    _context_slot_mapping_buffers: torch.Tensor
    _get_positions: Callable[[int], torch.Tensor]
    build_model_inputs_first_pass: Callable[..., None]

    def _run_model(
        self,
        num_tokens: int,
        inputs_embeds: torch.Tensor | None,  # [num_tokens, hidden_size]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the head on its buffers; return the hidden states for logits twice."""
        self.build_model_inputs_first_pass(num_tokens, self._context_slot_mapping_buffers)
        states = self.model(
            input_ids=self.input_ids[:num_tokens],
            positions=self._get_positions(num_tokens),
            inputs_embeds=inputs_embeds,
        )
        return states, states
