"""What all proposers with a draft model share on the NPU: the width of the draft loop.

vllm-ascend runs draft steps 2..K on as many rows as the first one wherever graphs are on
(spec_decode/llm_base_proposer.py:1669): K+1 rows for each request, of which one is used. Ours runs
them on one row for each request, in graphs and out of them. All K steps are one graph there, so
three parts have to agree: the loop itself, the attention metadata that it is captured with, and
the attention metadata that a replay is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import CUDAGraphMode
from vllm.distributed.parallel_state import get_pp_group
from vllm.forward_context import get_forward_context
from vllm_ascend.ascend_forward_context import _EXTRA_CTX
from vllm_ascend.spec_decode.llm_base_proposer import _split_draft_outputs
from vllm_ascend.utils import enable_sp, lmhead_tp_enable

from vllm_ascend_spec.config.ascend import (
    GRAPH_REMEDY,
    check_draft_loop,
    check_full_graph,
    samples_drafts,
)
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.log import get_logger
from vllm_ascend_spec.proposers.certain import CertainDraftsMixin
from vllm_ascend_spec.proposers.sampling import DraftSampler, make_draft_sampler

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.config.schema import SpecOptions

logger = get_logger(__name__)
Drafts = list[tuple[torch.Tensor, torch.Tensor | None]]


class NpuModelProposerMixin(CertainDraftsMixin):
    """Mix into a subclass of ``AscendSpecDecodeBaseProposer``, before it in the bases."""

    use_own_loop: bool

    @classmethod
    def create(
        cls, vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
    ) -> Any:
        """Build the proposer of an engine.

        Raises:
            ConfigError: ``draft_loop="fused"`` was asked for, which is the CPU's, or drafts were
                to be sampled within a graph.
        """
        proposer: Any = cls(vllm_config, device, runner)  # type: ignore[call-arg]
        spec = proposer.speculative_config
        # As on the CPU: vLLM hands the distributions over for the standard method alone; the block
        # rule needs them as much.
        proposer._enable_probabilistic_draft_probs = samples_drafts(
            lambda name: getattr(spec, name, None)
        )
        _require_possible(proposer, options)
        obstacle = proposer.own_loop_obstacle()
        proposer.use_own_loop = options.draft_loop != "stock" and not obstacle
        if obstacle and options.draft_loop != "stock":
            logger.warning("Draft loop of vllm-ascend is used, because of %s.", obstacle)
        return proposer

    @property
    def drafts_to_the_end(self) -> bool:
        """Whether a request at its end keeps the others from nothing: ours plans each row."""
        return self.use_own_loop

    def own_loop_obstacle(self: Any) -> str | None:
        """Return what keeps our loop from being used, or None."""
        obstacles = {
            "M-RoPE positions": self.uses_mrope,
            "a multimodal target": self.supports_mm_inputs,
            "parallel drafting": self.parallel_drafting,
            "constant draft positions": getattr(self, "constant_draft_positions", False),
            "decode context parallelism": self.dcp_size > 1,
            "data parallelism": self.vllm_config.parallel_config.data_parallel_size > 1,
            "sequence parallelism": enable_sp(self.vllm_config),
            "lmhead_tensor_parallel_size": lmhead_tp_enable(),
            "compressed attention": self.use_compress,
        }
        return next((name for name, present in obstacles.items() if present), None)

    def _run_merged_draft(  # noqa: PLR0913, PLR0917 - the signature is vllm-ascend's
        self: Any,
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
        if not self.use_own_loop:
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
        self._last_draft_probs = None
        sampling = sampling_metadata or self.runner.input_batch.sampling_metadata
        last, hidden = self._run_model(num_input_tokens)
        rows = token_indices_to_sample
        positions = self.positions[rows]
        sampler = make_draft_sampler(self, sampling, positions)
        drafts: Drafts = [self._draft(last[rows], sampler)]
        if self.num_speculative_tokens > 1:
            # The first step's metadata is in the forward context already.
            nothing: list[Any] = [None] * (self.num_speculative_tokens - 1)
            later = multi_steps_attn_metadata[1:] or nothing
            self._later_steps(later, hidden[rows], positions, drafts, sampler)
        if drafts[0][1] is not None:
            self._last_draft_probs = torch.stack([probs for _, probs in drafts], dim=1)
        return torch.stack([tokens for tokens, _ in drafts], dim=1)

    def _later_steps(
        self: Any,
        metadata: list[dict[str, Any] | None],
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        positions: torch.Tensor,  # [num_reqs]
        drafts: Drafts,
        sampler: DraftSampler | None,
    ) -> None:
        """Run draft steps 2..K, one row per request each, appending to ``drafts``."""
        num_reqs = positions.shape[0]
        with self._one_row_per_request(num_reqs) as width:
            for step_metadata in metadata:
                get_forward_context().attn_metadata = step_metadata
                positions = positions + 1
                # Past the end a draft is dropped anyway; it only must not leave the tables.
                inside = torch.where(positions >= self.max_model_len, 0, positions)
                # A graph replays on the buffers it was captured with.
                self.input_ids[:num_reqs] = drafts[-1][0]
                self._set_positions(num_reqs, inside)
                if self.pass_hidden_states_to_model:
                    self.hidden_states[:num_reqs] = hidden
                last, hidden = self._run_model(width)
                hidden = hidden[:num_reqs]
                drafts.append(self._draft(last[:num_reqs], sampler))

    @contextmanager
    def _one_row_per_request(self: Any, num_reqs: int) -> Iterator[int]:
        """Let the forward context describe one row per request; yield the rows, with padding."""
        context = get_forward_context()
        first = context.cudagraph_runtime_mode, context.batch_descriptor, context.attn_metadata
        width = num_reqs
        if context.cudagraph_runtime_mode == CUDAGraphMode.PIECEWISE:
            mode, descriptor = self.runner.cudagraph_dispatcher.dispatch(
                num_tokens=num_reqs,
                uniform_decode=False,
                has_lora=bool(self.runner.input_batch.lora_id_to_lora_request),
                invalid_modes={CUDAGraphMode.FULL},
            )
            context.cudagraph_runtime_mode, context.batch_descriptor = mode, descriptor
            width = descriptor.num_tokens
        _EXTRA_CTX.num_tokens = width
        _EXTRA_CTX.num_accept_tokens = num_reqs
        try:
            yield width
        finally:
            context.cudagraph_runtime_mode, context.batch_descriptor, context.attn_metadata = first

    def _run_model(self: Any, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the draft on its buffers; return hidden states for logits and feedback."""
        context = get_forward_context()
        context.moe_layer_index = 0
        inputs = {
            "input_ids": self.input_ids[:num_tokens],
            "positions": self._get_positions(num_tokens),
            "inputs_embeds": None,
        }
        if self.pass_hidden_states_to_model:
            inputs["hidden_states"] = self.hidden_states[:num_tokens]
        last, hidden = _split_draft_outputs(self.model(**inputs))
        return last, hidden

    def _draft(
        self: Any,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        sampler: DraftSampler | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Pick one draft per request; with its distribution if it was sampled."""
        logits = self.model.compute_logits(hidden)
        return (logits.argmax(dim=-1), None) if sampler is None else sampler.draw(logits)

    def attn_update_stack_num_spec_norm(
        self: Any,
        draft_index: int,
        old_common_metadata: Any,
        batch_size: int,
        input_batch_size: int,
        used_update_positions: torch.Tensor,  # [num_reqs]
        aclgraph_runtime_mode: CUDAGraphMode,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Build the attention metadata of a later step; the signature is vllm-ascend's."""
        if draft_index == 1:
            old_common_metadata = self._without_rejected(old_common_metadata, batch_size)
        if self.use_own_loop:
            # A full graph has the width that it was captured with, see dummy_run.
            is_full = aclgraph_runtime_mode == CUDAGraphMode.FULL
            input_batch_size = self._captured_reqs(input_batch_size) if is_full else batch_size
        return super().attn_update_stack_num_spec_norm(  # type: ignore[misc]
            draft_index,
            old_common_metadata,
            batch_size,
            input_batch_size,
            used_update_positions,
            aclgraph_runtime_mode,
            *args,
            **kwargs,
        )

    def _without_rejected(self: Any, metadata: Any, num_reqs: int) -> Any:
        """Return the metadata with the lengths on the host cut to what was accepted.

        vllm-ascend takes the rejected tokens out of the lengths on the device, but its attention
        reads those on the host: drafts would see rejected tokens, and after them whatever was in
        the cache before. They would be worse, and a seeded request would not repeat. With
        asynchronous scheduling the host does not know yet what was accepted.
        """
        if self.use_async_scheduling or get_pp_group().world_size > 1:
            return metadata
        known = torch.from_numpy(self.runner.input_batch.num_tokens_no_spec[:num_reqs].copy())
        # The token sampled last is an input of the first pass of a draft model only.
        known += self.net_num_new_slots_per_request - 1
        metadata = self.shallow_copy_metadata(metadata)
        for name in ("seq_lens_cpu", "_seq_lens_cpu"):
            if (lengths := getattr(metadata, name)) is not None:
                lengths = lengths.clone()
                lengths[:num_reqs] = torch.minimum(lengths[:num_reqs], known.to(lengths.dtype))
                setattr(metadata, name, lengths)
        return metadata

    def _captured_reqs(self: Any, num_input_tokens: int) -> int:
        """Return how many requests a full graph of this width is for."""
        return max(num_input_tokens // self.decode_threshold, 1)

    def _prepare_dcp_draft_dummy_metadata(
        self: Any, common_attn_metadata: Any, draft_index: int
    ) -> None:
        """Make the metadata that a later step is captured with describe one row per request.

        vllm-ascend calls this for each step that it captures, for decode context parallelism.
        """
        if not self.use_own_loop:
            super()._prepare_dcp_draft_dummy_metadata(common_attn_metadata, draft_index)  # type: ignore[misc]
            return
        if draft_index == 0:
            return
        metadata = common_attn_metadata
        if draft_index == 1:
            metadata.num_reqs = self._captured_reqs(metadata.num_input_tokens)
        num_reqs = metadata.num_reqs
        metadata.num_actual_tokens = metadata.num_input_tokens = num_reqs
        metadata.max_query_len = 1
        metadata.query_start_loc_cpu = torch.arange(num_reqs + 1, dtype=torch.int32)
        metadata.query_start_loc = self.query_start_loc_group[draft_index][: num_reqs + 1]
        metadata.query_start_loc.copy_(self.arange[: num_reqs + 1])
        metadata.seq_lens = self.seq_lens_group[draft_index][:num_reqs]
        metadata.block_table_tensor = metadata.block_table_tensor[:num_reqs]


def _require_possible(proposer: Any, options: SpecOptions) -> None:
    """Refuse what ``config/ascend.py`` refuses before anything is loaded, of the engine's own mode.

    Raises:
        ConfigError: naming the option and the reason.
    """
    check_draft_loop(options)
    mode = proposer.compilation_config.cudagraph_mode
    if not proposer.use_cuda_graph or not mode.has_full_cudagraphs():
        return
    check_full_graph(mode.name, samples_drafts=proposer._enable_probabilistic_draft_probs)
    schedule = proposer.speculative_config.num_speculative_tokens_per_batch_size
    if schedule:
        raise ConfigError(
            "speculative_config.num_speculative_tokens_per_batch_size",
            schedule,
            "not possible within a full graph on an NPU, which has all draft steps; "
            f"{GRAPH_REMEDY}",
        )
