"""The draft loop of vLLM's family, on CPU and CUDA.

vLLM's loop (``SpecDecodeBaseProposer.propose``) recomputes positions, slots and lengths in each
draft step, opens a forward context for each, and copies inputs into graph buffers even without a
graph. Our loop plans all steps at once and opens one context, or none if the draft can be called
directly (``direct.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context, set_forward_context

from vllm_ascend_spec.methods.loops.base import DraftLoopMixin, Picked
from vllm_ascend_spec.methods.loops.parallel import keep_inside, rows_of_drafts
from vllm_ascend_spec.methods.loops.sampling import DraftSampler
from vllm_ascend_spec.methods.loops.vllm.direct_steps import DirectStepsMixin
from vllm_ascend_spec.methods.loops.vllm.host_inputs import FirstStepInputs, HostInputsMixin
from vllm_ascend_spec.methods.loops.vllm.row_graphs import RowGraphsMixin
from vllm_ascend_spec.methods.loops.vllm.step_plan import StepPlan, plan_steps, plan_steps_on_host
from vllm_ascend_spec.methods.loops.vllm.stock import StockProposer
from vllm_ascend_spec.upstream.proposer import Inputs, ProposeMixin

if TYPE_CHECKING:
    from torch import nn
    from vllm.v1.attention.backend import CommonAttentionMetadata


class VllmDraftLoop(
    ProposeMixin, DraftLoopMixin, DirectStepsMixin, HostInputsMixin, RowGraphsMixin, StockProposer
):
    """Mixin for subclasses of vLLM's ``SpecDecodeBaseProposer``; goes before it in the bases."""

    stock_name = "vLLM"

    def loop_problems(self) -> Mapping[str, bool]:
        """Map each feature that our loop lacks to whether this engine needs it."""
        parallel = self.vllm_config.parallel_config
        return {
            "M-RoPE positions": self.uses_mrope,
            "a multimodal target": self.supports_mm_inputs,
            "constant draft positions": self.constant_draft_positions,
            "use_heterogeneous_vocab": self.use_heterogeneous_vocab,
            "data parallelism": parallel.data_parallel_size > 1,
            "expert load balancing": parallel.enable_eplb,
        }

    def load_model(self, target_model: nn.Module) -> None:
        """Load the draft and check whether it can be called directly."""
        super().load_model(target_model)  # type: ignore[misc]
        if self.uses_own_loop and self.device.type == "cpu":
            self.find_direct()

    def propose_from(self, k: int, inputs: Inputs) -> torch.Tensor:
        """Draft ``k`` tokens per request.

        Returns:
            Draft token ids, int64 [num_reqs, k].
        """
        if not self.uses_own_loop:
            return self.propose_by_stock(k, inputs)
        if self.keeps_cache_only:
            k = 0
        self.num_speculative_tokens = k
        self._last_draft_probs = None
        num_reqs, num_rejected = inputs.next_token_ids.shape[0], inputs.num_rejected_tokens_gpu
        first, metadata = self._inputs_of_first_pass(inputs)
        if self.direct is not None and not self.parallel_drafting:
            return self.draft_directly(first, metadata, num_rejected, inputs.sampling_metadata)
        if self.parallel_drafting:
            keep_inside(metadata, first.positions, self.draft_context, self.block_size)
        self.keep_positions_inside(first.positions)
        last, hidden = self._first_step(first, metadata)
        if k == 0:
            # The pass above only updated the draft's KV cache.
            return self.no_drafts(num_reqs)
        if self.parallel_drafting:
            rows = rows_of_drafts(first.rows, num_reqs, k)
            sampler = self.sampler_of(inputs.sampling_metadata, first.positions[rows[:, 0]])
            return self.pick_all(last[rows], sampler)
        positions, picked = first.positions[first.rows], last[first.rows]
        sampler = self.sampler_of(inputs.sampling_metadata, positions)
        drafts = [self.pick(picked, sampler)]
        if k > 1:
            self.one_row_each(metadata, num_reqs, num_rejected)
            plan = self.plan_later_steps(metadata, positions)
            feedback = picked if hidden is last else hidden[first.rows]
            self._later_steps(plan, metadata, feedback, drafts, sampler)
        return self.join(drafts)

    def _inputs_of_first_pass(
        self, inputs: Inputs
    ) -> tuple[FirstStepInputs, CommonAttentionMetadata]:
        """Return the inputs and the attention metadata of draft step 1."""
        hidden, metadata = inputs.target_hidden_states, inputs.common_attn_metadata
        if self.eagle3_use_aux_hidden_state:
            # Projects the concatenated states of several layers to the draft's width.
            hidden = self.model.combine_hidden_states(hidden)
        rows, num_rejected = inputs.token_indices_to_sample, inputs.num_rejected_tokens_gpu
        if self.direct is not None and not self.parallel_drafting:
            rows = metadata.query_start_loc_cpu[1:] - 1 if rows is None else rows
            read = FirstStepInputs(inputs.target_token_ids, inputs.target_positions, hidden, rows)
            first, metadata = self.inputs_on_host(
                read, inputs.next_token_ids, metadata, num_rejected
            )
            if self.draft_context < self.max_model_len:
                positions = first.positions.clamp(max=self.draft_context - 1)
                first = first._replace(positions=positions)
            return first, metadata
        num_tokens, rows, metadata = self.set_inputs_first_pass(
            target_token_ids=inputs.target_token_ids,
            next_token_ids=inputs.next_token_ids,
            target_positions=inputs.target_positions,
            target_hidden_states=hidden,
            token_indices_to_sample=rows,
            cad=metadata,
            num_rejected_tokens_gpu=num_rejected,
        )
        first = FirstStepInputs(
            self.input_ids[:num_tokens],
            self.positions[:num_tokens],
            self.hidden_states[:num_tokens],
            rows,
        )
        return first, metadata

    def _first_step(
        self, first: FirstStepInputs, metadata: CommonAttentionMetadata
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run draft step 1 on the target's tokens; return states for logits and for feedback."""
        _, per_layer = self.build_per_group_and_layer_attn_metadata(metadata)
        num_tokens = first.token_ids.shape[0]
        if self.direct is not None:  # all drafts in one pass
            return self.direct.forward(
                first.token_ids, first.positions, first.hidden, per_layer, metadata.slot_mapping
            )
        mode, num_input_tokens, across_dp = self._determine_batch_execution_and_padding(num_tokens)
        self.last_graph = mode.name
        inputs, num_slots = self.build_model_inputs_first_pass(num_tokens, num_input_tokens, None)
        with set_forward_context(
            per_layer,
            self.vllm_config,
            num_tokens=num_input_tokens,
            num_tokens_across_dp=across_dp,
            cudagraph_runtime_mode=mode,
            slot_mapping=self._get_slot_mapping(num_slots, metadata.slot_mapping),
        ):
            return self._run_model(inputs)

    def no_drafts(self, num_reqs: int) -> torch.Tensor:
        """Return empty drafts, int64 [num_reqs, 0], for a step that only updates the KV cache."""
        return torch.empty((num_reqs, 0), dtype=torch.int64, device=self.device)

    def one_row_each(
        self,
        metadata: CommonAttentionMetadata,
        num_reqs: int,
        num_rejected: torch.Tensor | None,  # [num_reqs]
    ) -> None:
        """Make ``metadata`` describe the last accepted token of each request."""
        on_host = self.device.type == "cpu"
        if num_rejected is not None:
            # Only draft step 1 counts rejected tokens.
            metadata.seq_lens = metadata.seq_lens - num_rejected
        starts = self.arange[: num_reqs + 1]
        metadata.num_actual_tokens = num_reqs
        metadata.max_query_len = 1
        metadata.query_start_loc = starts
        metadata.query_start_loc_cpu = (
            starts if on_host else torch.from_numpy(np.arange(num_reqs + 1, dtype=np.int32))
        )

    def plan_later_steps(
        self,
        metadata: CommonAttentionMetadata,
        positions: torch.Tensor,  # [num_reqs]
    ) -> StepPlan:
        """Plan draft steps 2 to K; call :meth:`one_row_each` first."""
        plan = plan_steps_on_host if self.device.type == "cpu" else plan_steps
        return plan(
            positions,
            metadata.seq_lens,
            metadata.block_table_tensor,
            self.block_size,
            self.draft_context,
            self.num_speculative_tokens - 1,
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
        return self.build_per_group_and_layer_attn_metadata(metadata, draft_index=step + 1)[1]

    def _later_steps(
        self,
        plan: StepPlan,
        metadata: CommonAttentionMetadata,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        drafts: list[Picked],
        sampler: DraftSampler | None,
    ) -> None:
        """Run draft steps 2 to K on one token per request; append to ``drafts``."""
        num_reqs = hidden.shape[0]
        mode, padded, across_dp = self._determine_batch_execution_and_padding(num_reqs)
        with set_forward_context(
            None,
            self.vllm_config,
            num_tokens=padded,
            num_tokens_across_dp=across_dp,
            cudagraph_runtime_mode=mode,
        ):
            context = get_forward_context()
            for step, positions in enumerate(plan.positions):
                context.attn_metadata = self.step_metadata(metadata, plan, step)
                slots = self._step_slots(plan.slots[step], padded, mode)
                context.slot_mapping = dict.fromkeys(self._draft_attn_layer_names, slots)
                tokens = drafts[-1][0].int()
                inputs = self._step_inputs(tokens, positions, hidden, padded, mode)
                last, hidden = self._run_model(inputs)
                hidden = hidden[:num_reqs]
                drafts.append(self.pick(last[:num_reqs], sampler))

    def _step_slots(self, slots: torch.Tensor, padded: int, mode: CUDAGraphMode) -> torch.Tensor:
        if mode == CUDAGraphMode.NONE:
            return slots
        return next(iter(self._get_slot_mapping(padded, slots).values()))

    def _step_inputs(
        self,
        tokens: torch.Tensor,  # [num_reqs]
        positions: torch.Tensor,  # [num_reqs]
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        padded: int,
        mode: CUDAGraphMode,
    ) -> dict[str, Any]:
        if mode != CUDAGraphMode.NONE:
            # A graph replays on the buffers it was captured with.
            num_reqs = tokens.shape[0]
            self.input_ids[:num_reqs] = tokens
            self.positions[:num_reqs] = positions
            self.hidden_states[:num_reqs] = hidden
            tokens, positions = self.input_ids[:padded], self.positions[:padded]
            hidden = self.hidden_states[:padded]
        inputs = {"input_ids": tokens, "positions": positions, "inputs_embeds": None}
        if self.pass_hidden_states_to_model:
            inputs["hidden_states"] = hidden
        return inputs

    def _run_model(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.model(**inputs)
        return output if self.model_returns_tuple() else (output, output)

    def _greedy_sample(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.direct is not None:
            return self.direct.argmax(hidden_states)
        if self.use_local_argmax_reduction or self.use_heterogeneous_vocab:
            return super()._greedy_sample(hidden_states)  # type: ignore[misc]
        return self.argmax(hidden_states)

    def pick(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        sampler: DraftSampler | None,
    ) -> Picked:
        """Pick one draft per request; greedy drafts use vLLM's argmax, which may be sharded."""
        if sampler is None:
            return self._greedy_sample(hidden), None
        return super().pick(hidden, sampler)
