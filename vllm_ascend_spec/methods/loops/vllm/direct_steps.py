"""Draft steps of a draft that is called directly on the CPU (``direct.py``), without buffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.log import get_logger
from vllm_ascend_spec.methods.loops.base import Picked
from vllm_ascend_spec.methods.loops.vllm.deferred_kv import DeferredKVWrites, PendingTokens
from vllm_ascend_spec.methods.loops.vllm.host_inputs import (
    FirstStepInputs,
    rotated,
    with_next_tokens,
)
from vllm_ascend_spec.methods.loops.vllm.step_plan import LastRows, StepPlan

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.loops.sampling import DraftSampler
    from vllm_ascend_spec.methods.loops.vllm.direct import DirectLlama

logger = get_logger(__name__)


class DirectStepsMixin:
    """The part of vLLM's family's draft loop that calls the draft directly.

    Attributes:
        direct: the draft, if it can be called directly.
        deferred: tokens that the draft has yet to read; None if it must read them at once.
    """

    direct: DirectLlama | None = None
    deferred: DeferredKVWrites | None = None
    vllm_config: VllmConfig
    model: Any
    block_size: int
    max_model_len: int
    needs_extra_input_slots: bool
    num_speculative_tokens: int
    build_per_group_and_layer_attn_metadata: Callable[..., tuple[Any, dict[str, Any]]]
    one_row_each: Callable[[CommonAttentionMetadata, int, torch.Tensor | None], None]
    plan_later_steps: Callable[[CommonAttentionMetadata, torch.Tensor], StepPlan]
    step_metadata: Callable[[CommonAttentionMetadata, StepPlan, int], dict[str, Any]]
    sampler_of: Callable[[SamplingMetadata, torch.Tensor], DraftSampler | None]
    pick: Callable[[torch.Tensor, DraftSampler | None], Picked]
    join: Callable[[list[Picked]], torch.Tensor]
    no_drafts: Callable[[int], torch.Tensor]

    def find_direct(self) -> None:
        """Set ``direct`` if the draft can be called directly; otherwise log why not."""
        from vllm_ascend_spec.methods.loops.vllm.direct import direct_of, problem_of

        # A connector takes keys and values while vLLM's attention layers run, layer by layer.
        is_taken = self.vllm_config.kv_transfer_config is not None
        found = "a KV connector" if is_taken else problem_of(self.model)
        if found is None:
            self.direct = direct_of(self.model)
        else:
            logger.info("The draft runs through its modules, because of %s.", found)

    def initialize_attn_backend(
        self, kv_cache_config: KVCacheConfig, kernel_block_sizes: list[int] | None = None
    ) -> None:
        """Decide from the KV cache layout whether to defer reads; the signature is vLLM's."""
        super().initialize_attn_backend(kv_cache_config, kernel_block_sizes)  # type: ignore[misc]
        self.deferred = DeferredKVWrites(self._read) if self._may_defer(kv_cache_config) else None

    def _may_defer(self, kv_cache_config: KVCacheConfig) -> bool:
        """Tell whether keys and values may be written after the step that they belong to.

        Keys and values of layers after the first depend on attention over the cache. KV cache
        groups share memory, so a block may belong to another layer by then.
        """
        return (
            self.direct is not None
            and len(self.direct.layers) == 1
            and len(kv_cache_config.kv_cache_groups) == 1
        )

    def _read(self, tokens: PendingTokens) -> None:
        """Write the keys and values of tokens; the draft has one layer."""
        assert self.direct is not None
        token_ids, positions, hidden, slots = tokens
        nothing = LastRows(positions[:0], None)
        self.direct.forward(token_ids, positions, hidden, {}, slots, nothing)

    def inputs_on_host(
        self,
        read: FirstStepInputs,
        next_token_ids: torch.Tensor,  # [num_reqs]
        metadata: CommonAttentionMetadata,
        num_rejected: torch.Tensor | None,  # [num_reqs]
    ) -> tuple[FirstStepInputs, CommonAttentionMetadata]:
        """Return the inputs and the attention metadata of draft step 1.

        Args:
            read: the target's inputs, its states, and the last accepted row of each request.
            next_token_ids: int32, the token sampled last for each request.
            metadata: attention metadata of the target.
            num_rejected: int32, number of rejected tokens at the end of each request.
        """
        # patches/first_draft_step.py hooks into the stock proposer's preparation: apply it here.
        if (patched := getattr(self, "metadata_of_first_step", None)) is not None:
            metadata = patched(metadata)
        if self.needs_extra_input_slots:
            return with_next_tokens(
                read.token_ids,
                read.positions,
                next_token_ids,
                num_rejected,
                metadata,
                self.block_size,
                self.max_model_len,
            )
        return read._replace(token_ids=rotated(read.token_ids, next_token_ids, read.rows)), metadata

    def draft_directly(
        self,
        first: FirstStepInputs,
        metadata: CommonAttentionMetadata,
        num_rejected: torch.Tensor | None,  # [num_reqs]
        sampling_metadata: SamplingMetadata,
    ) -> torch.Tensor:
        """Draft without modules; the last layer computes only the rows that yield drafts.

        Args:
            first: inputs of draft step 1.
            metadata: attention metadata of draft step 1.
            num_rejected: int32, number of rejected tokens at the end of each request.
            sampling_metadata: sampling parameters of the requests.

        Returns:
            Drafts, int64 [num_reqs, num_speculative_tokens].
        """
        assert self.direct is not None
        num_reqs, slots = first.rows.shape[0], metadata.slot_mapping
        if self.deferred is not None:
            if self.num_speculative_tokens == 0:
                self.deferred.add(
                    PendingTokens(first.token_ids, first.positions, first.hidden, slots)
                )
                return self.no_drafts(num_reqs)
            self.deferred.catch_up()
        has_lower = len(self.direct.layers) > 1
        lower = self.build_per_group_and_layer_attn_metadata(metadata)[1] if has_lower else {}
        first_pass = partial(
            self.direct.forward, first.token_ids, first.positions, first.hidden, lower, slots
        )
        if self.num_speculative_tokens == 0:
            # Only update the draft's KV cache.
            first_pass(last=LastRows(first.rows, None))
            return self.no_drafts(num_reqs)
        positions = first.positions[first.rows]
        self.one_row_each(metadata, num_reqs, num_rejected)
        metadata.seq_lens_cpu_upper_bound = metadata.seq_lens
        per_layer = self.build_per_group_and_layer_attn_metadata(metadata)[1]
        last, hidden = first_pass(last=LastRows(first.rows, per_layer))
        sampler = self.sampler_of(sampling_metadata, positions)
        drafts = [self.pick(last, sampler)]
        if self.num_speculative_tokens > 1:
            plan = self.plan_later_steps(metadata, positions)
            for step, places in enumerate(plan.positions):
                per_layer = self.step_metadata(metadata, plan, step)
                tokens = drafts[-1][0].int()
                last, hidden = self.direct.forward(
                    tokens, places, hidden, per_layer, plan.slots[step]
                )
                drafts.append(self.pick(last, sampler))
        return self.join(drafts)
