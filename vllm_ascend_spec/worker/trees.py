"""Drafts that are trees, in a runner: their positions, their attention, and their accepted paths.

The scheduler sees a list of drafts; only the worker knows which draft follows which. Any prefix of
the list is a tree, so vLLM may cut it. A request of whose drafts nothing is known has a chain.

After verification the rows of the accepted path are moved to the places where a chain's would be:
input tokens, positions, hidden states, keys and values. So everything that comes after, drafting
included, sees a chain of as many drafts of which the first ones were accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.config.draft_tree import attach_parents
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.ops.send import send_list
from vllm_ascend_spec.verification.trees import BatchTrees, attach, trees_of
from vllm_ascend_spec.worker.tree_plan import StepTrees, depths_of, is_chain

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata


class TreesMixin:
    """Mixin for ``GPUModelRunner`` or a subclass; must come before it in the bases.

    Attributes:
        parents_of_drafts: parents of the drafts that each request got last, by its id; chains
            are left out.
    """

    device: torch.device
    drafter: Any
    input_batch: Any
    positions: torch.Tensor
    input_ids: Any
    query_start_loc: Any
    execute_model_state: Any
    requests: dict[str, Any]
    vllm_config: VllmConfig
    tree_depth: int
    parents_of_drafts: Mapping[str, Sequence[int]] = MappingProxyType({})
    _trees: StepTrees | None = None
    _states: tuple[Any, ...] = ()

    def note_trees(self, req_ids: Sequence[str]) -> None:
        """Remember how the drafts hang together that the drafter has just made."""
        drafter = self.drafter
        parents = drafter.take_parents() if hasattr(drafter, "take_parents") else None
        if parents is not None:
            # A request that was left out of a step still has the drafts of an earlier one.
            known = {**self.parents_of_drafts, **dict(zip(req_ids, parents, strict=True))}
            self.parents_of_drafts = {
                req_id: own
                for req_id, own in known.items()
                if req_id in self.requests and not is_chain(own)
            }

    def take_draft_token_ids(self) -> Any:
        """Return vLLM's drafts with how they hang together; grammars follow their paths."""
        drafts = super().take_draft_token_ids()  # type: ignore[misc]
        if drafts is not None and self.parents_of_drafts:
            given = zip(drafts.req_ids, drafts.draft_token_ids, strict=False)
            attach_parents(drafts, [self._parents_of(req_id, len(own)) for req_id, own in given])
        return drafts

    def _prepare_inputs(self, *args: Any, **kwargs: Any) -> Any:
        """Do what vLLM does, and move the rows of trees to the positions of their depths."""
        prepared = super()._prepare_inputs(*args, **kwargs)  # type: ignore[misc]
        self._trees = None
        metadata: SpecDecodeMetadata | None = prepared[1]
        asked = None if metadata is None else speculation_of(self.vllm_config)
        if metadata is None or asked is None or not asked.has_trees:
            return prepared
        counts, req_ids = metadata.num_draft_tokens, self.input_batch.req_ids
        parents = [self._parents_of(*drafts) for drafts in zip(req_ids, counts, strict=True)]
        depths = [depths_of(own) for own in parents]
        self.tree_depth += sum(max(own) for own in depths if len(own) > asked.longest_chain)
        if all(map(is_chain, parents)):
            return prepared
        starts = self.query_start_loc.np[: len(counts) + 1].tolist()
        self._trees = StepTrees(parents, starts, counts)
        attach(metadata, BatchTrees.of(parents, self.device))
        shifts = [depth - place for own in depths for place, depth in enumerate([0, *own])]
        self._shifts = send_list(shifts, torch.int64, self.device)
        self.positions[metadata.logits_indices] += self._shifts
        return prepared

    def _parents_of(self, req_id: str, num_drafts: int) -> tuple[int, ...]:
        """Return the parents of a request's drafts; those of a chain if they are not known."""
        known = self.parents_of_drafts.get(req_id, ())
        return tuple(known[:num_drafts] if len(known) >= num_drafts else range(-1, num_drafts - 1))

    def _build_attention_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Do what vLLM does, and say along which paths rows attend."""
        built = super()._build_attention_metadata(*args, **kwargs)  # type: ignore[misc]
        # A dummy run has none, whatever the step before it had.
        if self._trees is not None and (indices := kwargs.get("logits_indices")) is not None:
            self.attend_along_paths(built, indices, self._trees)
        return built

    def attend_along_paths(
        self,
        built: Any,
        logits_indices: torch.Tensor,  # [num_rows]
        trees: StepTrees,
    ) -> None:
        """Let each row attend to the text and to its own path; one per device.

        Args:
            built: what vLLM's ``_build_attention_metadata`` has returned.
            logits_indices: int64, the rows that verify drafts.
            trees: those of the step.
        """
        raise NotImplementedError

    def keep_accepted(
        self,
        rows: torch.Tensor,  # [num_tokens]
        places: torch.Tensor,  # [num_tokens]
    ) -> None:
        """Write keys and values of accepted paths where the next step reads them; one per device.

        Args:
            rows: int64, which of the rows that verify drafts.
            places: int64, the rows of the batch to whose slots they are written.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: Any) -> Any:
        """Do what vLLM does; its states are at hand when the accepted paths are known."""
        state = self.execute_model_state
        self._states = ()
        if state is not None and self._trees is not None:
            self._states = (state.hidden_states, *(state.aux_hidden_states or ()))
            self._sampled_states = state.sample_hidden_states
        return super().sample_tokens(grammar_output)  # type: ignore[misc]

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        """Verify, and move the accepted paths of trees; the signature is vLLM's."""
        output = super()._sample(logits, spec_decode_metadata)  # type: ignore[misc]
        if (trees := trees_of(spec_decode_metadata)) is not None:
            self._settle(spec_decode_metadata, trees)
            self._learn(trees)
        return output

    def _learn(self, trees: BatchTrees) -> None:
        """Tell the drafter which paths were accepted, where that needs no wait for a device."""
        drafter, rows = self.drafter, trees.output_rows
        if hasattr(drafter, "learn_tree") and rows is not None and rows.device.type == "cpu":
            paths = [[row for row in own if row >= 0] for own in rows.tolist()]
            drafter.learn_tree(trees.by_request, paths)

    def _settle(self, metadata: SpecDecodeMetadata, trees: BatchTrees) -> None:
        """Move the rows of each accepted path to where a chain's accepted rows are.

        The host does not wait to learn how long the paths are: in each column behind a path's end
        a row is moved to its own place.
        """
        accepted = trees.output_rows
        assert accepted is not None
        ends = metadata.cu_num_sampled_tokens.long()[:, None]
        first = torch.cat([ends.new_zeros(1, 1), ends[:-1]])
        columns = torch.arange(accepted.shape[1], device=accepted.device)
        own = torch.minimum(columns, ends - first - 1)
        places = (first + own).flatten()
        rows = (first + torch.where(accepted >= 0, accepted, own)).flatten()
        flat, flat_places = metadata.logits_indices[rows], metadata.logits_indices[places]
        self.positions[metadata.logits_indices] -= self._shifts
        for tensor in (self.input_ids.gpu, *self._states):
            tensor[flat_places] = tensor[flat]
        if self._states:
            self._sampled_states[places] = self._sampled_states[rows]
        self._states = ()
        self.keep_accepted(rows, flat_places)
