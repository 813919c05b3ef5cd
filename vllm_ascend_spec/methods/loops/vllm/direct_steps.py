"""Draft steps of a draft whose kernels are called directly on the CPU (``direct.py``)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.methods.loops.vllm.deferred_kv import DeferredKVWrites, PendingTokens
from vllm_ascend_spec.methods.loops.vllm.step_plan import LastRows

if TYPE_CHECKING:
    import torch
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.loops.vllm.direct import DirectLlama
    from vllm_ascend_spec.methods.loops.vllm.loop import VllmDraftLoop
    from vllm_ascend_spec.methods.loops.vllm.steps import FirstStep


class DirectSteps:
    """Calls the draft's kernels; the last layer computes only the rows that yield drafts.

    Args:
        loop: the draft loop, with the draft model loaded.
        direct: the draft.
    """

    def __init__(self, loop: VllmDraftLoop, direct: DirectLlama) -> None:
        self._loop = loop
        self.direct = direct

    def forward(self, first: FirstStep) -> tuple[torch.Tensor, torch.Tensor]:
        """Run draft step 1; see :class:`DraftSteps`."""
        per_layer = self._loop.metadata_by_layer(first.metadata)
        return self.direct.forward(*first.tokens, per_layer, first.metadata.slot_mapping)

    def draft(self, k: int, first: FirstStep, sampling: SamplingMetadata) -> torch.Tensor:
        """Run draft steps 1 to ``k``; see :class:`DraftSteps`."""
        loop, metadata = self._loop, first.metadata
        if k == 0:
            self._update_cache(first)
            return loop.no_drafts(first.rows.shape[0])
        if self.deferred is not None:
            self.deferred.catch_up()
        positions = first.positions[first.rows]
        last, hidden = self._first_step(first)
        sampler = loop.sampler_of(sampling)
        drafts = [loop.pick(last, sampler)]
        if k > 1:
            plan = loop.plan_later_steps(metadata, positions, k - 1)
            states = [hidden]
            for each in loop.later_passes(k):
                per_layer = loop.step_metadata(metadata, plan, each.depth)
                tokens, feedback = loop.read_by(each, drafts).int(), states[each.before]
                last, hidden = self.direct.forward(
                    tokens, plan.positions[each.depth], feedback, per_layer, plan.slots[each.depth]
                )
                states.append(hidden)
                drafts.append(loop.pick(last, sampler))
        return loop.join(drafts)

    def argmax(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
    ) -> torch.Tensor:
        """Return the argmax token of each request, int64 [num_reqs]."""
        return self.direct.argmax(hidden)

    def _first_step(self, first: FirstStep) -> tuple[torch.Tensor, torch.Tensor]:
        """Run draft step 1; return the states of the rows that yield drafts."""
        loop, metadata, slots = self._loop, first.metadata, first.metadata.slot_mapping
        lower = self._metadata_of_lower_layers(first)
        loop.one_row_each(first)
        metadata.seq_lens_cpu_upper_bound = metadata.seq_lens
        per_layer = loop.metadata_by_layer(metadata)
        rows = LastRows(first.rows, per_layer)
        return self.direct.forward(*first.tokens, lower, slots, rows)

    def _metadata_of_lower_layers(self, first: FirstStep) -> dict[str, Any]:
        if len(self.direct.layers) == 1:
            return {}
        return self._loop.metadata_by_layer(first.metadata)

    @cached_property
    def deferred(self) -> DeferredKVWrites | None:
        """The tokens that the draft has yet to read; None if it must read them at once.

        Keys and values of layers after the first depend on attention over the cache. KV cache
        groups share memory, so a block may belong to another layer when it is written.
        """
        one_group = len(self._loop.runner.kv_cache_config.kv_cache_groups) == 1
        return DeferredKVWrites(self._write) if one_group and len(self.direct.layers) == 1 else None

    def _update_cache(self, first: FirstStep) -> None:
        """Write the keys and values of a step without drafts, or queue it."""
        slots = first.metadata.slot_mapping
        if self.deferred is None:
            lower = self._metadata_of_lower_layers(first)
            self.direct.forward(*first.tokens, lower, slots, LastRows(first.rows, None))
        else:
            self.deferred.add(PendingTokens(*first.tokens, slots))

    def _write(self, tokens: PendingTokens) -> None:
        """Write the keys and values of tokens to the cache of the draft's one layer."""
        token_ids, positions, hidden, slots = tokens
        nothing = LastRows(positions[:0], None)
        self.direct.forward(token_ids, positions, hidden, {}, slots, nothing)
