"""Decide per request what vLLM's runner decides for a whole batch.

Otherwise a request's drafts would depend on the other requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.confidence import attach_confidences
from vllm_ascend_spec.config.draft_context import may_be_ragged
from vllm_ascend_spec.verification.draft_probs import gather_draft_probs

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig


class PerRequestMixin:
    """Mixin for ``GPUModelRunner`` or a subclass; must come before it in the bases."""

    vllm_config: VllmConfig
    drafter: Any
    input_batch: Any
    effective_drafter_max_model_len: int
    _draft_probs: torch.Tensor | None
    _draft_prob_req_ids: list[str] | None
    _drafts_for_none: bool = False

    def _get_spec_decode_draft_probs(self, spec_decode_metadata: Any) -> torch.Tensor | None:
        """Return the drafts' distributions; vLLM drops all of them if one is not known."""
        ids = self.input_batch.req_ids
        known, known_ids = self._draft_probs, self._draft_prob_req_ids
        return gather_draft_probs(known, known_ids, ids, spec_decode_metadata)

    def _input_fits_in_drafter(self, common_attn_metadata: Any) -> bool:
        """Tell whether to draft; vLLM drafts for no request if one is near the draft's limit."""
        fits = super()._input_fits_in_drafter(common_attn_metadata)  # type: ignore[misc]
        if not fits and common_attn_metadata is not None and self.drafter.drafts_to_the_end:
            fits = self._has_request_to_draft_for()
        self._drafts_for_none = not fits
        return fits

    def _has_request_to_draft_for(self) -> bool:
        """Tell whether a request is within the draft's context, or a KV connector is used."""
        # Before this step's bookkeeping a request may look shorter than it is.
        known = self.input_batch.num_tokens_no_spec[: self.input_batch.num_reqs]
        is_taken = self.vllm_config.kv_transfer_config is not None
        return is_taken or bool((known < self.effective_drafter_max_model_len).any())

    def take_draft_token_ids(self) -> Any:
        """Return the drafts; empty lists where vLLM fills in zeros, if no graph needs the rows."""
        drafts = super().take_draft_token_ids()  # type: ignore[misc]
        confidences = self._take_confidences()
        if drafts is not None and self._drafts_for_none and may_be_ragged(self.vllm_config):
            drafts.draft_token_ids = [[] for _ in drafts.req_ids]
        elif drafts is not None and confidences is not None:
            attach_confidences(drafts, confidences.tolist())
        return drafts

    def _take_confidences(self) -> torch.Tensor | None:
        """Return the drafter's confidence in each of its drafts, [num_reqs, K], if it has any."""
        drafter: Any = getattr(self, "drafter", None)
        return drafter.take_confidences() if hasattr(drafter, "take_confidences") else None
