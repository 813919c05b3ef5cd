"""The mixin that swaps our proposer and verifier into a vLLM model runner (V1).

Style contract: this file orchestrates and computes nothing. A method added here must forward to
another part; tests/worker/test_runner.py keeps the file short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.config.resolve import resolve_options
from vllm_ascend_spec.proposers.registry import create_proposer
from vllm_ascend_spec.verification.draftless import draftless_metadata
from vllm_ascend_spec.verification.sampler import SpecVerifier
from vllm_ascend_spec.worker.by_request import ByRequestMixin

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class SpecRunnerMixin(ByRequestMixin):
    """Mix into ``GPUModelRunner`` or a subclass, before it in the bases."""

    vllm_config: VllmConfig
    device: torch.device
    sampler: Any
    rejection_sampler: Any
    execute_model_state: Any

    def install_spec_parts(self) -> None:
        """Replace the stock drafter and rejection sampler; call after the stock ``__init__``.

        The last pipeline rank alone has them, and only with speculative decoding on.
        """
        if not hasattr(self, "rejection_sampler"):
            return
        options = resolve_options(self.vllm_config)
        self.drafter = create_proposer(self.vllm_config, self.device, self, options)
        self.rejection_sampler = SpecVerifier(self.sampler, self.vllm_config, options)

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample and draft; masks of structured output are the verifier's to apply."""
        state = self.execute_model_state
        if grammar_output is not None and state is not None and hasattr(self, "rejection_sampler"):
            req_ids = self.input_batch.req_ids
            mask = self.rejection_sampler.mask_logits
            mask(state.logits, state.scheduler_output, grammar_output, req_ids)
            grammar_output = None
        return super().sample_tokens(grammar_output)  # type: ignore[misc]

    def _sample(self, logits: torch.Tensor, spec_decode_metadata: Any) -> Any:
        if spec_decode_metadata is None and hasattr(self, "rejection_sampler"):
            spec_decode_metadata = draftless_metadata(self.input_batch.sampling_metadata, logits)
        return super()._sample(logits, spec_decode_metadata)  # type: ignore[misc]
