"""The draft loop of vllm-ascend's family, which runs draft steps 2 to K on one row per request.

With graphs on, vllm-ascend runs draft steps 2 to K on as many rows as step 1
(``AscendSpecDecodeBaseProposer._run_merged_draft``): K+1 rows per request, of which one is used.
Our loop runs them on one row per request, with graphs and without. A full graph holds all K steps,
so three parts have to agree: the loop, the attention metadata at capture, and the attention
metadata at replay (``metadata.py``).

In a tree, a pass reads each draft that others follow, in the order of a depth-first walk. Passes of
equal depth share position, slots and metadata: siblings have the same place in the KV cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm_ascend.ascend_config import get_ascend_config
from vllm_ascend.ascend_forward_context import _EXTRA_CTX, set_ascend_forward_context
from vllm_ascend.spec_decode.llm_base_proposer import (
    AscendSpecDecodeBaseProposer,
    _split_draft_outputs,
)

from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.methods.loops.ascend.graph_params import belonging_to_graph
from vllm_ascend_spec.methods.loops.ascend.graphs import GraphsByLengthMixin
from vllm_ascend_spec.methods.loops.ascend.limits import refuse_length, require_possible
from vllm_ascend_spec.methods.loops.ascend.metadata import LaterStepMetadataMixin
from vllm_ascend_spec.methods.loops.ascend.shared_indices import SharedIndicesMixin
from vllm_ascend_spec.methods.loops.ascend.split_head import SplitHeadMixin
from vllm_ascend_spec.methods.loops.ascend.window import WindowMixin
from vllm_ascend_spec.methods.loops.base import DraftLoopMixin, Picked
from vllm_ascend_spec.methods.loops.parallel import keep_inside, rows_of_drafts
from vllm_ascend_spec.methods.loops.places import places_of

if TYPE_CHECKING:
    from typing_extensions import Self
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.drafter import DrafterContext
    from vllm_ascend_spec.methods.loops.sampling import DraftSampler


class AscendDraftLoop(  # type: ignore[misc]
    LaterStepMetadataMixin,
    SharedIndicesMixin,
    SplitHeadMixin,
    WindowMixin,
    GraphsByLengthMixin,
    DraftLoopMixin,
):
    """Mixin for subclasses of ``AscendSpecDecodeBaseProposer``; goes before it in the bases."""

    stock_name = "vllm-ascend"

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine.

        Raises:
            ConfigError: K changes from step to step in full graphs, which only our loop supports.
        """
        drafter = super().create(engine)
        # For dummy runs; vllm-ascend sets it before each other one.
        drafter.num_speculative_tokens = drafter.num_steps(drafter.num_speculative_tokens)
        # Data-parallel replicas in lock-step always run the same number of draft steps.
        in_lockstep = has_lockstep_replicas(engine.vllm_config)
        if drafter.tree is not None and drafter.has_all_steps_in_a_graph() and in_lockstep:
            problem = "full graphs of data-parallel replicas that step together yet"
            drafter.refuse_tree(engine.speculation, problem)
        if drafter.has_all_steps_in_a_graph() and not in_lockstep:
            drafter.lengths = engine.speculation.lengths_of_graphs
            if drafter.lengths and not drafter.uses_own_loop:
                option = engine.speculation.sources.get("schedule", "draft_length")
                refuse_length(option, list(drafter.lengths), drafter.loop_problem() or "draft_loop")
        return drafter

    def require_possible(self) -> None:
        """Refuse options that do not fit this engine's graph mode.

        Parallel drafting runs without graphs: its number of rows is not a multiple of the target's,
        for which graphs are captured.

        Raises:
            ConfigError: naming the option and the reason.
        """
        if self.parallel_drafting:
            self.use_cuda_graph = False
        require_possible(self)

    def loop_problems(self) -> Mapping[str, bool]:
        """Map each feature that our loop lacks to whether this engine needs it."""
        layers = get_ascend_config().finegrained_tp_config
        return {
            "decode context parallelism": self.dcp_size > 1,
            # Only half of a pair with KV transfer has them, so none was tried.
            "oproj_tensor_parallel_size": bool(layers.oproj_tensor_parallel_size),
            "mlp_tensor_parallel_size": bool(layers.mlp_tensor_parallel_size),
            "compressed attention": self.use_compress,
            "KV cache offload of sparse attention": getattr(
                self.runner, "sparse_kv_offload_enabled", False
            ),
        }

    @property
    def drafts_in_place(self) -> bool:
        """Whether all draft steps are at one position, as a draft without keys and values has it.

        vllm-ascend's preparation of attention metadata knows it, too.
        """
        return getattr(self, "constant_draft_positions", False)

    def has_all_steps_in_a_graph(self) -> bool:
        """Tell whether one graph holds all draft steps, so that none can be skipped."""
        mode = self.compilation_config.cudagraph_mode
        return self.use_cuda_graph and mode.has_full_cudagraphs() and not self.lengths

    # inspect.signature() has to report vllm-ascend's; only the first parameter matters here.
    @wraps(AscendSpecDecodeBaseProposer._propose, assigned=())
    def _propose(self, num_speculative_tokens: int, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Draft, or only update the draft's KV cache.

        vllm-ascend does not run the draft model if there is nothing to draft. The tokens of such
        steps would be missing in the draft's KV cache for the rest of the request.

        Returns:
            Draft token ids, int64 [num_reqs, num_speculative_tokens].
        """
        has_drafts = num_speculative_tokens > 0 and not self.keeps_cache_only
        # For a replay, which skips :meth:`_run_merged_draft`; a real run overwrites it there.
        runs = has_drafts or self.uses_own_loop
        self.last_graph = CUDAGraphMode.FULL.name if runs else ""
        if has_drafts or not self.uses_own_loop:
            num_steps = self.num_steps(num_speculative_tokens)
            return super()._propose(num_steps, *args, **kwargs)  # type: ignore[misc]
        drafts = super()._propose(self.num_steps(1), *args, **kwargs)  # type: ignore[misc]
        self._last_draft_probs = None
        return drafts[:, :0]

    def _run_merged_draft(  # noqa: PLR0913, PLR0917 - the signature is vllm-ascend's
        self,
        num_input_tokens: int,
        batch_size: int,
        token_indices_to_sample: torch.Tensor,  # [num_reqs]
        target_positions: torch.Tensor,  # [num_input_tokens]
        inputs_embeds: torch.Tensor | None,
        multi_steps_attn_metadata: list[dict[str, Any]],
        num_tokens: int,
        is_prefill: bool | None = None,
        sampling_metadata: SamplingMetadata | None = None,
    ) -> torch.Tensor:
        """Run all draft steps, or record them in a graph; the signature is vllm-ascend's.

        Returns:
            Draft token ids, int64 [num_reqs, num_speculative_tokens].
        """
        if is_forward_context_available():
            self.last_graph = get_forward_context().cudagraph_runtime_mode.name
        if not self.uses_own_loop:
            return super()._run_merged_draft(  # type: ignore[misc]
                num_input_tokens,
                batch_size,
                token_indices_to_sample,
                target_positions,
                inputs_embeds,
                multi_steps_attn_metadata,
                num_tokens,
                is_prefill,
                sampling_metadata,
            )
        k = self.num_speculative_tokens  # of this step: vllm-ascend sets it in _propose
        sampling = sampling_metadata or self.runner.input_batch.sampling_metadata
        if self.parallel_drafting:
            rows = rows_of_drafts(token_indices_to_sample, batch_size, k)
            return self._draft_in_one_pass(num_input_tokens, rows, inputs_embeds, sampling)
        self.select_in_step_1()
        last, hidden = self._run_model(num_input_tokens, inputs_embeds)
        rows = self.rows_to_draft_from(token_indices_to_sample)
        self.read_selection_of(rows, num_input_tokens)
        positions = self._get_positions(num_input_tokens)[..., rows]
        sampler = self.sampler_of(sampling)
        drafts = [self.pick(last[rows], sampler)]
        if k > 1:
            # The first step's metadata is in the forward context already.
            later: list[dict[str, Any] | None] = [*multi_steps_attn_metadata[1:]]
            if not later:
                later = [None] * (k - 1)
            self._later_steps(later, hidden[rows], positions, drafts, sampler)
        return self.join(drafts)

    def _draft_in_one_pass(
        self,
        num_input_tokens: int,
        rows: torch.Tensor,  # [num_reqs, K]
        inputs_embeds: torch.Tensor | None,  # [num_input_tokens, hidden_size]
        sampling: SamplingMetadata,
    ) -> torch.Tensor:
        """Run the draft once and return the drafts of its mask rows, [num_reqs, K]."""
        last, _ = self._run_model(num_input_tokens, inputs_embeds)
        sampler = self.sampler_of(sampling)
        return self.pick_all(last[rows], sampler)

    def set_inputs_first_pass(
        self,
        target_token_ids: torch.Tensor,  # [num_tokens]
        next_token_ids: torch.Tensor,  # [num_reqs]
        target_positions: torch.Tensor,  # [num_tokens], or [3, num_tokens]
        target_hidden_states: torch.Tensor,  # [num_tokens, hidden_size]
        token_indices_to_sample: torch.Tensor | None,  # [num_reqs]
        cad: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Prepare draft step 1; the signature is vllm-ascend's."""
        if target_positions.ndim > 1 and self.needs_extra_input_slots:
            # A draft model reads images' tokens as text.
            target_positions = places_of(cad, target_positions)
        prepared = super().set_inputs_first_pass(  # type: ignore[misc]
            target_token_ids,
            next_token_ids,
            target_positions,
            target_hidden_states,
            token_indices_to_sample,
            cad,
            *args,
            **kwargs,
        )
        if self.uses_own_loop:
            num_tokens, _, metadata, _ = prepared
            positions = self._get_positions(num_tokens)
            if self.parallel_drafting:
                keep_inside(metadata, positions, self.draft_context, self.kernel_block_size)
            self.keep_positions_inside(positions)
        return prepared

    def _set_positions(
        self,
        num_tokens: int,
        positions: torch.Tensor,  # [num_tokens], or [3, num_tokens]
    ) -> None:
        """Write the positions of a step into the buffer that graphs read.

        Of a draft without M-RoPE, vllm-ascend gives all requests the first one's position in draft
        steps 2 to K if the target has M-RoPE: it takes the positions for the target's.
        """
        own = self._get_positions(num_tokens)
        own.copy_(positions if positions.ndim == own.ndim else positions[0])

    def _later_steps(
        self,
        metadata: list[dict[str, Any] | None],
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        positions: torch.Tensor,  # [num_reqs], or [3, num_reqs]
        drafts: list[Picked],
        sampler: DraftSampler | None,
    ) -> None:
        """Run all passes but the first on one row per request; append to ``drafts``.

        Args:
            metadata: by the depth of a pass, in which the passes of a tree differ.
            hidden: states of the rows that the first drafts were made from.
            positions: of these rows.
            drafts: what the first pass has picked.
            sampler: of sampled drafts.
        """
        num_reqs = positions.shape[-1]
        with self._one_row_per_request(num_reqs) as width:
            context = get_forward_context()
            # The next replay of a piece of the model overwrites what this one has returned.
            is_piecewise = context.cudagraph_runtime_mode == CUDAGraphMode.PIECEWISE
            is_kept = is_piecewise and self.tree is not None
            states = [hidden]
            for each in self.later_passes(len(metadata) + 1):
                context.attn_metadata = metadata[each.depth]
                tokens = self.read_by(each, drafts)
                own = positions if self.drafts_in_place else positions + (each.depth + 1)
                # Drafts past the end are dropped anyway; they only must not index out of bounds.
                inside = torch.where(own >= self.draft_context, 0, own)
                # A graph replays on the buffers it was captured with.
                self.input_ids[:num_reqs] = tokens
                self._set_positions(num_reqs, inside)
                if self.pass_hidden_states_to_model:
                    self.hidden_states[:num_reqs] = states[each.before]
                embeddings = None
                if self.supports_mm_inputs:
                    self.inputs_embeds[:num_reqs] = self.model.embed_input_ids(tokens)
                    embeddings = self.inputs_embeds[:width]
                last, hidden = self._run_model(width, embeddings)
                hidden = hidden[:num_reqs]
                states.append(hidden.clone() if is_kept else hidden)
                drafts.append(self.pick(last[:num_reqs], sampler))

    @contextmanager
    def _one_row_per_request(self, num_reqs: int) -> Iterator[int]:
        """Open a forward context for one row per request; yield the padded number of rows."""
        first: Any = get_forward_context()  # with what vllm-ascend adds to vLLM's
        mode, descriptor = first.cudagraph_runtime_mode, first.batch_descriptor
        width = num_reqs
        if mode != CUDAGraphMode.FULL:  # of which all replicas run the same one
            runner: Any = self.runner
            width = runner._sync_metadata_across_dp(num_reqs, is_draft_model=True)[0]
        if mode == CUDAGraphMode.PIECEWISE:
            mode, descriptor = self.runner.cudagraph_dispatcher.dispatch(
                num_tokens=width,
                uniform_decode=False,
                has_lora=bool(self.runner.input_batch.lora_id_to_lora_request),
                invalid_modes={CUDAGraphMode.FULL},
            )
            width = descriptor.num_tokens
        replicas = self.vllm_config.parallel_config.data_parallel_size
        graph_rows = descriptor.num_tokens if mode == CUDAGraphMode.FULL else width
        with (
            belonging_to_graph(graph_rows, width),
            set_ascend_forward_context(
                None,
                self.vllm_config,
                num_tokens=width,
                num_tokens_across_dp=None if replicas == 1 else torch.full((replicas,), width),
                num_actual_tokens=num_reqs,
                in_profile_run=first.in_profile_run,
                aclgraph_runtime_mode=mode,
                batch_descriptor=descriptor,
                is_draft_model=True,
                draft_attn_metadatas=first.draft_attn_metadatas,
                eplb_heat_collection_status=first.eplb_heat_collection_status,
            ),
        ):
            _EXTRA_CTX.capturing = first.capturing
            _EXTRA_CTX.num_accept_tokens = num_reqs
            yield width

    def _run_model(
        self,
        num_tokens: int,
        inputs_embeds: torch.Tensor | None,  # [num_tokens, hidden_size]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the draft on its buffers; return hidden states for logits and feedback."""
        context = get_forward_context()
        context.moe_layer_index = 0
        inputs = {
            "input_ids": self.input_ids[:num_tokens],
            "positions": self._get_positions(num_tokens),
            "inputs_embeds": inputs_embeds,
        }
        if self.pass_hidden_states_to_model:
            inputs["hidden_states"] = self.hidden_states[:num_tokens]
        last, hidden = _split_draft_outputs(self.model(**inputs))
        return last, hidden
