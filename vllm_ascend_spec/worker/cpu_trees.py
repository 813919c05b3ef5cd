"""Trees on a CPU: path by path through vLLM's own kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.worker.cpu_tree_attention import ATTRIBUTE, PathRound, StepPaths
from vllm_ascend_spec.worker.tree_plan import plan_rounds

if TYPE_CHECKING:
    from vllm_ascend_spec.worker.tree_plan import Round, StepTrees


class CpuTreesMixin:
    """Mixin for ``CPUModelRunner``; must come before it and ``TreesMixin`` in the bases."""

    attn_groups: Any
    compilation_config: Any
    _layer_metadata: dict[str, Any]

    def attend_along_paths(
        self,
        built: Any,
        logits_indices: torch.Tensor,  # [num_rows]
        trees: StepTrees,
    ) -> None:
        """Add the paths to vLLM's metadata; layers of one group share one object."""
        self._layer_metadata, common = built
        rounds = plan_rounds(trees)
        for groups in self.attn_groups:
            for group in groups:
                whole = self._layer_metadata[group.layer_names[0]]
                builder = group.get_metadata_builder()
                found = [_round_of(each, builder, whole, common) for each in rounds]
                setattr(whole, ATTRIBUTE, StepPaths(found, logits_indices))

    def keep_accepted(
        self,
        rows: torch.Tensor,  # [num_tokens]
        places: torch.Tensor,  # [num_tokens]
    ) -> None:
        """Write the keys and values of accepted paths to their slots, in every layer."""
        layers = self.compilation_config.static_forward_context
        for name, metadata in self._layer_metadata.items():
            layer = layers[name]
            if getattr(layer.impl, "kept", None) is not None:
                layer.impl.keep_path(layer, rows, metadata.slot_mapping[places])
                layer.impl.kept = None


def _round_of(each: Round, builder: Any, whole: Any, common: Any) -> PathRound:
    requests = torch.tensor(each.requests)
    counts = torch.tensor(each.counts, dtype=torch.int32)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0, dtype=torch.int32)])
    lengths = whole.seq_lens[requests] - torch.tensor(each.unseen, dtype=torch.int32)
    rows, moved = torch.tensor(each.rows), torch.tensor(each.moved, dtype=torch.int64)
    slots = whole.slot_mapping
    places = torch.tensor(each.places, dtype=torch.int64)
    part = common.replace(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        num_reqs=len(each.requests),
        num_actual_tokens=len(each.rows),
        max_query_len=max(each.counts),
        max_seq_len=int(lengths.max()),
        block_table_tensor=whole.block_table[requests],
        slot_mapping=slots[rows],
    )
    return PathRound(builder.build(0, part), rows, moved, slots[places])
