"""What vLLM's runner decides for a whole batch, decided request by request.

Otherwise a request's drafts, and with a seed its tokens, depend on what runs beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.verification.draft_probs import gather_draft_probs

if TYPE_CHECKING:
    import torch


class ByRequestMixin:
    """Mix into ``GPUModelRunner`` or a subclass, before it in the bases."""

    drafter: Any
    input_batch: Any
    max_model_len: int
    effective_drafter_max_model_len: int
    _draft_probs: torch.Tensor | None
    _draft_prob_req_ids: list[str] | None

    def _get_spec_decode_draft_probs(self, spec_decode_metadata: Any) -> torch.Tensor | None:
        """Return the drafts' distributions; vLLM gives them all up where one is not known."""
        ids = self.input_batch.req_ids
        known, known_ids = self._draft_probs, self._draft_prob_req_ids
        return gather_draft_probs(known, known_ids, ids, spec_decode_metadata)

    def _input_fits_in_drafter(self, common_attn_metadata: Any) -> bool:
        """Tell whether to draft; vLLM drafts for none where one request is near its end."""
        if super()._input_fits_in_drafter(common_attn_metadata):  # type: ignore[misc]
            return True
        if common_attn_metadata is None or not self.drafter.drafts_to_the_end:
            return False
        # Past the draft's own end the first pass would leave its tables of positions.
        return self.effective_drafter_max_model_len >= self.max_model_len
