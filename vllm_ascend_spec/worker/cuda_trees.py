"""Trees on a GPU: each row has bits that say which rows of its request's end it sees."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.triton_attn import TritonAttentionImpl

from vllm_ascend_spec.config.cuda_trees import SHORTEST_WINDOW, cause_in_cache
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.worker.cuda_tree_attention import ATTRIBUTE, TreeAttentionImpl, TreeRows
from vllm_ascend_spec.worker.kept_rows import KeptRows
from vllm_ascend_spec.worker.tree_layers import SHARED, target_layers
from vllm_ascend_spec.worker.tree_plan import bits_of, principal_length

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.worker.tree_plan import StepTrees

ALL = -1


class CudaTreesMixin:
    """Mixin for ``GPUModelRunner``; must come before it and ``TreesMixin`` in the bases.

    A full graph always runs our kernel, which takes rows of prompts, chains and trees alike, and
    reads what rows see in a buffer. Outside of full graphs steps without trees run vLLM's.
    """

    vllm_config: VllmConfig
    device: torch.device
    dtype: torch.dtype
    compilation_config: Any
    model_config: Any
    max_num_tokens: int
    get_model: Any
    _tree_layers: Mapping[str, Any] = MappingProxyType({})
    _layer_metadata: dict[str, Any]
    _seen: torch.Tensor
    _kept_rows: torch.Tensor
    _kept: KeptRows
    _has_kept: bool = False
    _is_plain: bool = True

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do what vLLM does, and let the target's layers attend along paths."""
        super().load_model(*args, **kwargs)  # type: ignore[misc]
        asked = speculation_of(self.vllm_config)
        if asked.has_trees:
            self._take_over(asked)

    def _take_over(self, asked: SpecConfig) -> None:
        """Let the target's attention layers attend along paths.

        Raises:
            ConfigError: the target has attention that this is not possible with.
        """
        layers = self.compilation_config.static_forward_context
        self._tree_layers = target_layers(self.get_model(), layers, problem_of, asked)
        most_rows = self.vllm_config.scheduler_config.max_num_seqs * (asked.max_k + 1)
        most_rows = min(most_rows, self.max_num_tokens)
        self._seen = torch.full((self.max_num_tokens,), ALL, dtype=torch.int64, device=self.device)
        self._kept_rows = torch.zeros(most_rows, dtype=torch.int64, device=self.device)
        self._kept = KeptRows(
            self._tree_layers, TreeAttentionImpl, most_rows, self.dtype, self.device
        )

    def _build_attention_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Do what vLLM does; what a graph reads is that of this step."""
        self._has_kept = False
        # A sleep may have dropped what they held.
        if self._tree_layers and (not self._is_plain or self.model_config.enable_sleep_mode):
            self._seen.fill_(ALL)
            self._kept_rows.zero_()
            self._is_plain = True
        built = super()._build_attention_metadata(*args, **kwargs)  # type: ignore[misc]
        # A dummy run captures a graph, or prepares for that.
        if self._tree_layers and kwargs.get("logits_indices") is None:
            self._describe(built[0])
        return built

    def attend_along_paths(
        self,
        built: Any,
        logits_indices: torch.Tensor,  # [num_rows]
        trees: StepTrees,
    ) -> None:
        """Say what the rows of trees see; all others see all before them."""
        parents, starts, _ = trees
        if all(principal_length(own) == len(own) for own in parents):
            return
        seen: np.ndarray = np.full(starts[-1], ALL, dtype=np.int64)
        for own, end in zip(parents, starts[1:], strict=True):
            seen[end - len(own) - 1 : end] = bits_of(tuple(own))
        host = torch.from_numpy(seen)
        host = host if self.device.type == "cpu" else host.pin_memory()
        self._seen[: starts[-1]].copy_(host, non_blocking=True)
        self._kept_rows[: logits_indices.shape[0]].copy_(logits_indices)
        self._is_plain, self._has_kept = False, True
        self._describe(built[0])

    def _describe(self, metadata: dict[str, Any]) -> None:
        """Add what rows see to the metadata of the target's layers, which share objects."""
        self._layer_metadata = metadata
        for whole in {id(metadata[name]): metadata[name] for name in self._tree_layers}.values():
            count = whole.num_actual_tokens
            setattr(whole, ATTRIBUTE, TreeRows(self._seen[:count], self._kept_rows[:count]))

    def keep_accepted(
        self,
        rows: torch.Tensor,  # [num_tokens]
        places: torch.Tensor,  # [num_tokens]
    ) -> None:
        """Write the keys and values of accepted paths to their slots, in every layer."""
        if not self._has_kept:
            return
        self._kept.write(rows, self._layer_metadata, places)


def problem_of(layer: Any) -> str | None:
    """Return why a layer of the target cannot attend along paths; None if it can."""
    impl: Any = getattr(layer, "impl", None)
    # A kind of its own may have metadata of its own, too.
    if type(layer) is not Attention or type(impl) is not TritonAttentionImpl:
        return f"attention of {type(layer).__name__} by {type(impl).__name__} yet"
    window = impl.sliding_window[0] + 1
    problems = {
        "attention to an encoder": impl.attn_type != AttentionType.DECODER,
        "ALiBi": impl.alibi_slopes is not None,
        "attention in chunks": impl.chunk_lookback >= 0,
        f"a sliding window below {SHORTEST_WINDOW}": 0 < window < SHORTEST_WINDOW,
        SHARED: impl.kv_sharing_target_layer_name is not None,
    }
    found = next((f"{name} yet" for name, is_there in problems.items() if is_there), None)
    return found or cause_in_cache(impl.kv_cache_dtype)
