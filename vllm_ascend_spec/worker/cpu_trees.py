"""Trees on a CPU: path by path through vLLM's own kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.attention import Attention

from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.worker.cpu_tree_attention import (
    ATTRIBUTE,
    PathRound,
    StepPaths,
    TreeAttentionImpl,
)
from vllm_ascend_spec.worker.tree_layers import SHARED, target_layers
from vllm_ascend_spec.worker.tree_plan import plan_rounds

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.worker.tree_plan import Round, StepTrees


class CpuTreesMixin:
    """Mixin for ``CPUModelRunner``; must come before it and ``TreesMixin`` in the bases."""

    vllm_config: VllmConfig
    attn_groups: Any
    compilation_config: Any
    get_model: Any
    _layer_metadata: dict[str, Any]

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do what vLLM does, and see that the target's layers can attend along paths.

        Raises:
            ConfigError: one cannot.
        """
        super().load_model(*args, **kwargs)  # type: ignore[misc]
        if self.vllm_config.speculative_config is None:
            return
        asked = speculation_of(self.vllm_config)
        if asked.has_trees:
            layers = self.compilation_config.static_forward_context
            target_layers(self.get_model(), layers, problem_of, asked)

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


def problem_of(layer: Any) -> str | None:
    """Return why a layer of the target cannot attend along paths; None if it can."""
    # A kind of its own may have metadata of its own, too.
    if type(layer) is not Attention or not isinstance(layer.impl, TreeAttentionImpl):
        return f"attention of {type(layer).__name__} by {type(layer.impl).__name__} yet"
    return None if layer.impl.kv_sharing_target_layer_name is None else f"{SHARED} yet"


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
