"""Draft steps through the draft's modules, in graphs where there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context, set_forward_context

if TYPE_CHECKING:
    import torch
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.loops.base import Picked
    from vllm_ascend_spec.methods.loops.sampling import DraftSampler
    from vllm_ascend_spec.methods.loops.vllm.loop import VllmDraftLoop
    from vllm_ascend_spec.methods.loops.vllm.step_plan import StepPlan
    from vllm_ascend_spec.methods.loops.vllm.steps import FirstStep


class ModuleSteps:
    """Calls the draft as vLLM does.

    Args:
        loop: the draft loop, with the draft model loaded.
    """

    def __init__(self, loop: VllmDraftLoop) -> None:
        self._loop = loop

    def forward(self, first: FirstStep) -> tuple[torch.Tensor, torch.Tensor]:
        """Run draft step 1; see :class:`DraftSteps`."""
        loop, num_tokens = self._loop, first.token_ids.shape[0]
        per_layer = loop.metadata_by_layer(first.metadata)
        mode, padded, across_dp = loop._determine_batch_execution_and_padding(num_tokens)
        loop.last_graph = mode.name
        inputs, num_slots = loop.build_model_inputs_first_pass(num_tokens, padded, first.images)
        with set_forward_context(
            per_layer,
            loop.vllm_config,
            num_tokens=padded,
            num_tokens_across_dp=across_dp,
            cudagraph_runtime_mode=mode,
            slot_mapping=loop._get_slot_mapping(num_slots, first.metadata.slot_mapping),
        ):
            return self._run_model(inputs)

    def draft(self, k: int, first: FirstStep, sampling: SamplingMetadata) -> torch.Tensor:
        """Run draft steps 1 to ``k``; see :class:`DraftSteps`."""
        loop = self._loop
        last, hidden = self.forward(first)
        if k == 0:
            return loop.no_drafts(first.rows.shape[0])
        positions, picked = first.positions[..., first.rows], last[first.rows]
        sampler = loop.sampler_of(sampling)
        drafts = [loop.pick(picked, sampler)]
        if k > 1:
            loop.one_row_each(first)
            plan = loop.plan_later_steps(first.metadata, positions, k - 1)
            feedback = picked if hidden is last else hidden[first.rows]
            self._later_steps(plan, first.metadata, feedback, drafts, sampler)
        return loop.join(drafts)

    def argmax(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
    ) -> torch.Tensor:
        """Return the argmax token of each request, int64 [num_reqs]."""
        return self._loop._greedy_sample(hidden)

    def _later_steps(
        self,
        plan: StepPlan,
        metadata: CommonAttentionMetadata,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        drafts: list[Picked],
        sampler: DraftSampler | None,
    ) -> None:
        """Run draft steps 2 to K on one token per request; append to ``drafts``."""
        loop, num_reqs = self._loop, hidden.shape[0]
        mode, padded, across_dp = loop._determine_batch_execution_and_padding(num_reqs)
        with set_forward_context(
            None,
            loop.vllm_config,
            num_tokens=padded,
            num_tokens_across_dp=across_dp,
            cudagraph_runtime_mode=mode,
        ):
            context = get_forward_context()
            states = [hidden]
            for each in loop.later_passes(len(plan.positions) + 1):
                context.attn_metadata = loop.step_metadata(metadata, plan, each.depth)
                slots = self._step_slots(plan.slots[each.depth], padded, mode)
                context.slot_mapping = dict.fromkeys(loop._draft_attn_layer_names, slots)
                tokens, feedback = loop.read_by(each, drafts).int(), states[each.before]
                positions = plan.positions[each.depth]
                inputs = self._step_inputs(tokens, positions, feedback, padded, mode)
                last, hidden = self._run_model(inputs)
                # A graph's next replay overwrites what this one has returned.
                hidden = hidden[:num_reqs]
                is_kept = loop.tree is not None and mode != CUDAGraphMode.NONE
                states.append(hidden.clone() if is_kept else hidden)
                drafts.append(loop.pick(last[:num_reqs], sampler))

    def _step_slots(
        self,
        slots: torch.Tensor,  # [num_reqs]
        padded: int,
        mode: CUDAGraphMode,
    ) -> torch.Tensor:
        if mode == CUDAGraphMode.NONE:
            return slots
        return next(iter(self._loop._get_slot_mapping(padded, slots).values()))

    def _step_inputs(
        self,
        tokens: torch.Tensor,  # [num_reqs]
        positions: torch.Tensor,  # [num_reqs], or [3, num_reqs]
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        padded: int,
        mode: CUDAGraphMode,
    ) -> dict[str, Any]:
        loop = self._loop
        # A draft that takes embeddings in step 1 is compiled for these.
        embeddings = loop.model.embed_input_ids(tokens) if loop.supports_mm_inputs else None
        if mode != CUDAGraphMode.NONE:
            # A graph replays on the buffers it was captured with.
            num_reqs = tokens.shape[0]
            loop.input_ids[:num_reqs] = tokens
            loop._get_positions(num_reqs).copy_(positions)
            loop.hidden_states[:num_reqs] = hidden
            tokens, positions = loop.input_ids[:padded], loop._get_positions(padded)
            hidden = loop.hidden_states[:padded]
            if embeddings is not None:
                loop.inputs_embeds[:num_reqs] = embeddings
                embeddings = loop.inputs_embeds[:padded]
        inputs = {
            "input_ids": tokens if embeddings is None else None,
            "positions": positions,
            "inputs_embeds": embeddings,
        }
        if loop.pass_hidden_states_to_model:
            inputs["hidden_states"] = hidden
        return inputs

    def _run_model(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        output = self._loop.model(**inputs)
        return output if self._loop.model_returns_tuple() else (output, output)
