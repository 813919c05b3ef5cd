"""The parts of vLLM's ``SpecDecodeBaseProposer`` that our loop uses; tests check each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from vllm.config import CUDAGraphMode
    from vllm.v1.attention.backend import CommonAttentionMetadata

    AttentionMetadataByLayer = dict[str, Any]


class StockProposer:
    """Type annotations of the stock proposer's attributes and methods; no code.

    Attributes:
        input_ids: int32 [max_num_tokens], buffer that graphs read.
        hidden_states: [max_num_tokens, hidden_size], likewise.
        inputs_embeds: [max_num_tokens, hidden_size of the target], likewise.
        arange: int32 [max_num_reqs + 1], 0, 1, 2, …
    """

    device: torch.device
    model: Any
    num_speculative_tokens: int
    max_model_len: int
    block_size: int
    input_ids: torch.Tensor
    hidden_states: torch.Tensor
    arange: torch.Tensor
    pass_hidden_states_to_model: bool
    supports_mm_inputs: bool
    needs_extra_input_slots: bool
    inputs_embeds: torch.Tensor
    parallel_drafting: bool
    constant_draft_positions: bool
    use_heterogeneous_vocab: bool
    use_local_argmax_reduction: bool
    _draft_attn_layer_names: set[str]
    set_inputs_first_pass: Callable[..., tuple[int, torch.Tensor, CommonAttentionMetadata]]
    build_per_group_and_layer_attn_metadata: Callable[..., tuple[Any, AttentionMetadataByLayer]]
    build_model_inputs_first_pass: Callable[..., tuple[dict[str, Any], int]]
    model_returns_tuple: Callable[[], bool]
    _get_positions: Callable[[int], torch.Tensor]
    _determine_batch_execution_and_padding: Callable[[int], tuple[CUDAGraphMode, int, Any]]
    _get_slot_mapping: Callable[..., dict[str, torch.Tensor]]
