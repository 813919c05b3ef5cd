"""The mixin that swaps our drafter and verifier into a model runner (V1) of any device.

Style contract: this file orchestrates and computes nothing. A method added here must forward to
another part; tests/worker/test_runner.py keeps the file short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.config.draft_context import draft_context
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.methods.drafter import DrafterContext, create_drafter
from vllm_ascend_spec.verification.sampler import SpecVerifier
from vllm_ascend_spec.worker.per_request import PerRequestMixin
from vllm_ascend_spec.worker.seeded_sampling import SeededSamplingMixin
from vllm_ascend_spec.worker.step_reports import StepReportsMixin
from vllm_ascend_spec.worker.trees import TreesMixin

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.methods.drafter import Drafter
    from vllm_ascend_spec.methods.step import Drafts, DraftStep


class SpecRunnerMixin(PerRequestMixin, SeededSamplingMixin, TreesMixin, StepReportsMixin):
    """Mixin for ``GPUModelRunner`` or a subclass; must come before it in the bases."""

    vllm_config: VllmConfig
    device: torch.device
    drafter: Drafter
    requests: dict[str, Any]
    cudagraph_dispatcher: Any
    optimistic_seq_lens_cpu: torch.Tensor
    kv_cache_config: Any
    sampler: Any
    rejection_sampler: Any
    execute_model_state: Any
    use_aux_hidden_state_outputs: bool
    num_spec_tokens: int

    def create_drafter(self) -> Drafter:
        """Build our drafter; called where the stock runner would build its own."""
        engine = DrafterContext(
            vllm_config=self.vllm_config,
            device=self.device,
            runner=self,
            speculation=speculation_of(self.vllm_config),
        )
        drafter = create_drafter(engine)
        self.use_aux_hidden_state_outputs = drafter.wants_aux_hidden_states
        return drafter

    def complete_spec_parts(self) -> None:
        """Replace the stock rejection sampler and warm the drafter up, after stock ``__init__``.

        Only the last pipeline rank has a drafter, and only with speculative decoding on.
        """
        if self.vllm_config.speculative_config is None:
            self.sample_without_speculation()
        if not hasattr(self, "drafter"):
            return
        asked = speculation_of(self.vllm_config)
        longest = self.vllm_config.model_config.max_model_len
        self.effective_drafter_max_model_len = draft_context(self.vllm_config) or longest
        self.rejection_sampler = SpecVerifier(self.sampler, self.vllm_config, asked)
        self.drafter.warm_up()

    def draft(self, step: DraftStep) -> Drafts:
        """Draft, and keep the drafts' distributions for the verifier."""
        self._draft_probs, self._draft_prob_req_ids = None, None
        with self.watches.drafting:
            drafts = self.drafter.draft(step)
        self.note_trees(step.batch.req_ids)
        # A stock runner that prepared the inputs has taken them already.
        if (probs := self.drafter.take_last_draft_probs()) is not None:
            self._draft_probs, self._draft_prob_req_ids = probs, list(step.batch.req_ids)
        return drafts

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample and draft; the verifier applies the masks of structured output."""
        state = self.execute_model_state
        with self.watches.step:
            masks = grammar_output is not None and state is not None
            if masks and hasattr(self, "drafter"):
                mask, req_ids = self.rejection_sampler.mask_logits, self.input_batch.req_ids
                with self.watches.verification:
                    mask(state.logits, state.scheduler_output, grammar_output, req_ids)
                grammar_output = None
            return super().sample_tokens(grammar_output)

    def _sample(self, logits: torch.Tensor, spec_decode_metadata: Any) -> Any:
        with self.watches.verification:
            return super()._sample(logits, spec_decode_metadata)
