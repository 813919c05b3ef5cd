"""The draft loop of vLLM's family, on CPU and CUDA.

vLLM's loop (``SpecDecodeBaseProposer.propose``) recomputes positions, slots and lengths in each
draft step, opens a forward context for each, and copies inputs into graph buffers even without a
graph. Our loop plans all steps at once; how they call the draft is up to :class:`DraftSteps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.log import get_logger
from vllm_ascend_spec.methods.loops.base import DraftLoopMixin, Picked
from vllm_ascend_spec.methods.loops.parallel import keep_inside, rows_of_drafts
from vllm_ascend_spec.methods.loops.places import places_of
from vllm_ascend_spec.methods.loops.sampling import DraftSampler
from vllm_ascend_spec.methods.loops.vllm.direct_steps import DirectSteps
from vllm_ascend_spec.methods.loops.vllm.module_steps import ModuleSteps
from vllm_ascend_spec.methods.loops.vllm.row_graphs import RowGraphsMixin
from vllm_ascend_spec.methods.loops.vllm.step_plan import StepPlan, plan_in_place, plan_steps
from vllm_ascend_spec.methods.loops.vllm.steps import DraftSteps, FirstStep
from vllm_ascend_spec.methods.loops.vllm.stock import StockProposer
from vllm_ascend_spec.methods.loops.vllm.windowed import WindowedMetadataMixin
from vllm_ascend_spec.upstream.proposer import Inputs, ProposeMixin

if TYPE_CHECKING:
    from torch import nn
    from vllm.v1.attention.backend import CommonAttentionMetadata

logger = get_logger(__name__)


def leave_adapters_out(draft: Any) -> None:
    """Let a draft that shares the target's embeddings read them without LoRA adapters.

    vLLM's LoRA layer adds to each row of the target's step its request's adapter. The rows of a
    pass over masks are others, so they would get another request's, or fail if they are fewer.
    """
    embeddings = getattr(getattr(draft, "model", None), "embed_tokens", None)
    without = getattr(embeddings, "base_layer", None)
    if without is not None:
        draft.model.embed_tokens = without


class VllmDraftLoop(
    ProposeMixin, DraftLoopMixin, RowGraphsMixin, WindowedMetadataMixin, StockProposer
):
    """Mixin for subclasses of vLLM's ``SpecDecodeBaseProposer``; goes before it in the bases.

    Attributes:
        steps: runs the draft steps of our loop.
    """

    stock_name = "vLLM"
    steps: DraftSteps

    def loop_problems(self) -> Mapping[str, bool]:
        """Map each feature that our loop lacks to whether this engine needs it."""
        parallel = self.vllm_config.parallel_config
        return {
            "use_heterogeneous_vocab": self.use_heterogeneous_vocab,
            "expert load balancing": parallel.enable_eplb,
        }

    def load_model(self, target_model: nn.Module) -> None:
        """Load the draft, and choose how to call it."""
        super().load_model(target_model)  # type: ignore[misc]
        if self.parallel_drafting:
            leave_adapters_out(self.model)
        if self.uses_own_loop:
            self.steps = self._steps()

    def _steps(self) -> DraftSteps:
        """Call the kernels of the draft directly where that is possible."""
        if self.device.type != "cpu":
            return ModuleSteps(self)
        from vllm_ascend_spec.methods.loops.vllm.direct import direct_of, problem_of

        # A connector takes keys and values while vLLM's attention layers run, layer by layer.
        is_taken = self.vllm_config.kv_transfer_config is not None
        problems = {
            "a KV connector": is_taken,
            "embeddings of images": self.supports_mm_inputs,
            # Replicas compare their batches before each pass, also those without work.
            "replicas in lock-step": has_lockstep_replicas(self.vllm_config),
        }
        found = next((name for name, is_there in problems.items() if is_there), None)
        found = found or problem_of(self.model)
        if found is None:
            return DirectSteps(self, direct_of(self.model))
        logger.info("The draft runs through its modules, because of %s.", found)
        return ModuleSteps(self)

    def propose_from(self, k: int, inputs: Inputs) -> torch.Tensor:
        """Draft ``k`` tokens per request.

        Returns:
            Draft token ids, int64 [num_reqs, k].
        """
        if not self.uses_own_loop:
            return self.propose_by_stock(k, inputs)
        if self.keeps_cache_only:
            k = 0
        k = self.num_steps(k)
        # vLLM's preparation of masks reads it, as its own loop sets it in each step.
        self.num_speculative_tokens = k
        self._last_draft_probs = None
        first = self._first_step(inputs)
        if self.parallel_drafting:
            return self._draft_in_one_pass(k, first, inputs)
        self.keep_positions_inside(first.positions)
        return self.steps.draft(k, first, inputs.sampling_metadata)

    def _first_step(self, inputs: Inputs) -> FirstStep:
        """Prepare draft step 1 as vLLM does, in its buffers."""
        hidden, num_rejected = inputs.target_hidden_states, inputs.num_rejected_tokens_gpu
        if self.eagle3_use_aux_hidden_state:
            # Projects the concatenated states of several layers to the draft's width.
            hidden = self.model.combine_hidden_states(hidden)
        metadata, positions = inputs.common_attn_metadata, inputs.target_positions
        if positions.ndim > 1 and self.needs_extra_input_slots:
            # A draft model reads images' tokens as text.
            positions = places_of(metadata, positions)
        # Before it is changed.
        texts = self.texts_of(metadata, num_rejected)
        num_tokens, rows, metadata = self.set_inputs_first_pass(
            target_token_ids=inputs.target_token_ids,
            next_token_ids=inputs.next_token_ids,
            target_positions=positions,
            target_hidden_states=hidden,
            token_indices_to_sample=inputs.token_indices_to_sample,
            cad=metadata,
            num_rejected_tokens_gpu=num_rejected,
        )
        self.set_window(texts, metadata)
        return FirstStep(
            self.input_ids[:num_tokens],
            self._get_positions(num_tokens),
            self.hidden_states[:num_tokens] if self.pass_hidden_states_to_model else None,
            rows,
            metadata,
            num_rejected,
            inputs.mm_embed_inputs,
        )

    def _draft_in_one_pass(self, k: int, first: FirstStep, inputs: Inputs) -> torch.Tensor:
        """Run the draft once and return the drafts of its mask rows, int64 [num_reqs, k]."""
        num_reqs = inputs.next_token_ids.shape[0]
        keep_inside(first.metadata, first.positions, self.draft_context, self.block_size)
        self.keep_positions_inside(first.positions)
        last, _ = self.steps.forward(first)
        if k == 0:
            # The pass only updated the draft's KV cache.
            return self.no_drafts(num_reqs)
        rows = rows_of_drafts(first.rows, num_reqs, k)
        sampler = self.sampler_of(inputs.sampling_metadata)
        return self.pick_all(last[rows], sampler)

    def no_drafts(self, num_reqs: int) -> torch.Tensor:
        """Return empty drafts, int64 [num_reqs, 0], for a step that only updates the KV cache."""
        return torch.empty((num_reqs, 0), dtype=torch.int64, device=self.device)

    def one_row_each(self, first: FirstStep) -> None:
        """Make the metadata describe the last accepted token of each request."""
        metadata, num_reqs = first.metadata, first.rows.shape[0]
        if first.num_rejected is not None:
            # Only draft step 1 counts rejected tokens.
            metadata.seq_lens = metadata.seq_lens - first.num_rejected
        starts = self.arange[: num_reqs + 1]
        metadata.num_actual_tokens = num_reqs
        metadata.max_query_len = 1
        metadata.query_start_loc = starts
        metadata.query_start_loc_cpu = (
            starts
            if self.device.type == "cpu"
            else torch.arange(num_reqs + 1, dtype=torch.int32, device="cpu")
        )

    def plan_later_steps(
        self,
        metadata: CommonAttentionMetadata,
        positions: torch.Tensor,  # [num_reqs], or [3, num_reqs]
        num_steps: int,
    ) -> StepPlan:
        """Plan draft steps 2 to ``num_steps + 1``; call :meth:`one_row_each` first."""
        if self.constant_draft_positions:
            return plan_in_place(positions, metadata.seq_lens, num_steps)
        has_mrope = self.vllm_config.model_config.uses_mrope
        return plan_steps(
            positions,
            metadata.seq_lens,
            metadata.block_table_tensor,
            self.block_size,
            self.draft_context,
            num_steps,
            metadata.seq_lens.long() - 1 if has_mrope else None,
        )

    def step_metadata(
        self, metadata: CommonAttentionMetadata, plan: StepPlan, step: int
    ) -> dict[str, Any]:
        """Return the attention metadata of one of draft steps 2 to K, by layer name."""
        metadata.seq_lens = plan.seq_lens[step]
        metadata.slot_mapping = plan.slots[step]
        metadata.max_seq_len = min(metadata.max_seq_len + 1, self.max_model_len)
        if self.device.type == "cpu":
            metadata.seq_lens_cpu_upper_bound = metadata.seq_lens
        elif metadata.seq_lens_cpu_upper_bound is not None:
            metadata.seq_lens_cpu_upper_bound = metadata.seq_lens_cpu_upper_bound + 1
        return self.metadata_by_layer(metadata, draft_index=step + 1)

    def _greedy_sample(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.use_local_argmax_reduction or self.use_heterogeneous_vocab:
            return super()._greedy_sample(hidden_states)  # type: ignore[misc]
        return self.argmax(hidden_states)

    def pick(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        sampler: DraftSampler | None,
    ) -> Picked:
        """Pick one draft per request; see :meth:`DraftLoopMixin.pick`."""
        if sampler is None and self.tree is None:
            return self.steps.argmax(hidden), None
        return super().pick(hidden, sampler)
