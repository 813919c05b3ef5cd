"""Trees on an NPU: the rows of each request attend to its text, and to each other with a mask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.config import CUDAGraphMode
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm_ascend.attention.attention_v1 import AscendAttentionBackendImpl

from vllm_ascend_spec.config.draft_tree import OPTION
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.ops.send import send, send_list
from vllm_ascend_spec.worker.kept_rows import KeptRows
from vllm_ascend_spec.worker.npu_tree_attention import ATTRIBUTE, TreeAttentionImpl, TreeRows
from vllm_ascend_spec.worker.tree_plan import is_chain, mask_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.worker.tree_plan import Parents, StepTrees


class NpuTreesMixin:
    """Mixin for ``NPUModelRunner``; must come before it and ``TreesMixin`` in the bases.

    In full graphs of more drafts than a chain has, all rows attend this way, also those of chains.
    The tree's shape does not change here, so a graph of fewer drafts is one of chains.
    """

    vllm_config: VllmConfig
    device: torch.device
    dtype: torch.dtype
    compilation_config: Any
    drafter: Any
    uses_mrope: bool
    _trees: StepTrees | None
    _tree_layers: Mapping[str, Any] = MappingProxyType({})
    _layer_metadata: dict[str, Any]
    _mask: torch.Tensor
    _most_chain_rows: int
    _kept: KeptRows
    _is_in_graph: bool = False
    _has_kept: bool = False
    _kept_rows: torch.Tensor | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do what vllm-ascend does, and let the target's layers attend along paths."""
        super().load_model(*args, **kwargs)  # type: ignore[misc]
        asked = speculation_of(self.vllm_config)
        if asked.has_trees:
            layers = self.compilation_config.static_forward_context
            drafts = set(getattr(self.drafter, "attn_layer_names", ()))
            self._take_over({name: layers[name] for name in layers if name not in drafts}, asked)

    def _take_over(self, layers: Mapping[str, Any], asked: SpecConfig) -> None:
        """Let layers attend along paths; others than attention's are left as they are.

        Raises:
            ConfigError: the target has attention that this is not possible with.
        """
        self._tree_layers = {
            name: layer for name, layer in layers.items() if isinstance(layer, AttentionLayerBase)
        }
        problems = [problem_of(layer) for layer in self._tree_layers.values()]
        problems += ["M-RoPE"] * self.uses_mrope
        problems += ["enable_dbo"] * self.vllm_config.parallel_config.enable_dbo
        if problem := next(filter(None, problems), None):
            option = asked.sources.get("has_trees", OPTION)
            raise ConfigError(option, asked.max_k, f"not possible with {problem} on an NPU yet")
        width, self._most_chain_rows = asked.max_k + 1, asked.longest_chain + 1
        most_rows = self.vllm_config.scheduler_config.max_num_seqs * width
        most_rows = max(most_rows, self.compilation_config.max_cudagraph_capture_size or 0)
        self._mask = torch.zeros(most_rows * width, dtype=torch.bool, device=self.device)
        self._kept = KeptRows(
            self._tree_layers, TreeAttentionImpl, most_rows, self.dtype, self.device
        )

    def _build_attention_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Do what vllm-ascend does, and describe the rows of a full graph."""
        self._has_kept = False
        self._is_in_graph = kwargs.get("cudagraph_runtime_mode") == CUDAGraphMode.FULL
        built = super()._build_attention_metadata(*args, **kwargs)  # type: ignore[misc]
        self._layer_metadata = built[0]
        if self._tree_layers and self._is_in_graph:
            indices = kwargs.get("logits_indices")
            trees = None if indices is None else self._trees
            self._attend_in_graph([] if trees is None else trees.parents)
            # A graph keeps all rows of the batch.
            self._has_kept = trees is not None and any(trees.num_drafts)
            self._kept_rows = indices
        return built

    def attend_along_paths(
        self,
        built: Any,
        logits_indices: torch.Tensor,  # [num_rows]
        trees: StepTrees,
    ) -> None:
        """Let requests with trees attend along paths, the others as vllm-ascend has them."""
        parents, starts, num_drafts = trees
        chosen = [i for i, own in enumerate(parents) if not is_chain(own)]
        if self._is_in_graph or not chosen:
            return
        width = max(num_drafts[i] for i in chosen) + 1
        # Those with fewer rows repeat their last one.
        rows = [starts[i + 1] - max(num_drafts[i] + 1 - j, 1) for i in chosen for j in range(width)]
        is_whole, is_everyone = rows == list(range(starts[-1])), len(chosen) == len(parents)
        index = None if is_whole else send_list(rows, torch.int64, self.device)
        requests = None if is_everyone else send_list(chosen, torch.int64, self.device)
        masks = stacked(mask_of(tuple(parents[i]), num_drafts[i] + 1, width) for i in chosen)
        mask = send(masks, self.device)

        # Of whose rows none is left to vllm-ascend's kernel.
        counts = {i: num_drafts[i] + 1 for i in chosen}
        unread = {i: n for i, n in counts.items() if starts[i + 1] - starts[i] == n}

        def describe(whole: Any) -> TreeRows:
            tables = whole.block_tables
            return TreeRows(
                ends=list(range(width, len(chosen) * width + 1, width)),
                contexts=[whole.seq_lens_list[i] - num_drafts[i] - 1 for i in chosen],
                block_table=tables[: len(chosen)] if requests is None else tables[requests],
                mask=mask,
                rows=index,
                others=without_texts(whole, unread) if len(set(rows)) < starts[-1] else None,
                kept=logits_indices,
            )

        self._describe(built[0], describe)
        self._has_kept, self._kept_rows = True, None

    def _attend_in_graph(self, parents: Sequence[Parents]) -> None:
        """Describe the rows of a full graph, of which each request has equally many."""

        def describe(whole: Any) -> TreeRows | None:
            ends = whole.actual_seq_lengths_q
            width, num_reqs = ends[0], len(ends)
            if width <= self._most_chain_rows:  # a graph of chains
                return None
            assert ends == list(range(width, num_reqs * width + 1, width))
            known = [tuple(own) for own in parents] + [()] * (num_reqs - len(parents))
            mask = self._mask[: ends[-1] * width].view(num_reqs, 1, width, width)
            masks = stacked(mask_of(own, width, width) for own in known)
            mask.copy_(masks.pin_memory(), non_blocking=True)
            contexts = [max(length - width, 0) for length in whole.seq_lens_list]
            return TreeRows(ends, contexts, whole.block_tables, mask, None, None, None)

        self._describe(self._layer_metadata, describe)

    def _describe(self, metadata: dict[str, Any], describe: Any) -> None:
        """Add a description to the metadata of the target's layers, which share objects."""
        for whole in {id(metadata[name]): metadata[name] for name in self._tree_layers}.values():
            setattr(whole, ATTRIBUTE, describe(whole))

    def keep_accepted(
        self,
        rows: torch.Tensor,  # [num_tokens]
        places: torch.Tensor,  # [num_tokens]
    ) -> None:
        """Write the keys and values of accepted paths to their slots, in every layer."""
        if not self._has_kept:
            return
        kept = rows if self._kept_rows is None else self._kept_rows[rows]
        self._kept.write(kept, self._layer_metadata, places)


def stacked(masks: Iterable[np.ndarray]) -> torch.Tensor:
    """Return masks of rows, each bool [width, width], as one, bool [num_reqs, 1, width, width]."""
    return torch.from_numpy(np.stack([*masks])[:, None])


def without_texts(whole: Any, rows: Mapping[int, int]) -> Any:
    """Return a copy of vllm-ascend's metadata whose attention reads no texts of some requests.

    Its kernel attends for all rows of the batch. What it finds for these requests is not used.

    Args:
        whole: metadata of the batch.
        rows: number of rows by request; they are all of its rows.
    """
    found = copy(whole)
    found.seq_lens_list = [rows.get(i, length) for i, length in enumerate(whole.seq_lens_list)]
    return found


def problem_of(layer: Any) -> str | None:
    """Return why a layer of the target cannot attend along paths; None if it can."""
    impl: Any = getattr(layer, "impl", None)
    if type(impl) is not AscendAttentionBackendImpl:
        return f"attention of {type(impl or layer).__name__}"
    problems = {
        "prefill context parallelism": impl.pcp_enabled,
        "a sliding window": impl.sliding_window is not None,
        "attention sinks": impl.sinks is not None,
        "keys and values that layers share": impl.kv_sharing_target_layer_name is not None,
        "a KV cache in blocks by head": impl.use_bnsd_kv_cache,
    }
    return next((problem for problem, is_there in problems.items() if is_there), None)
