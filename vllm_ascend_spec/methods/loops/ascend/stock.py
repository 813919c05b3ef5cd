"""The parts of ``AscendSpecDecodeBaseProposer`` that our loop uses; tests check each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class StockProposer:
    """Type annotations of the stock proposer's attributes and methods; no code.

    Attributes:
        input_ids: int32 [max_num_tokens], buffer that graphs read.
        token_indices_to_sample: int32 [max_num_reqs], likewise.
        hidden_states: [max_num_tokens, hidden_size], likewise.
        inputs_embeds: [max_num_tokens, hidden_size of the target], likewise.
        seq_lens_group: int32 [max_num_reqs] for each draft step, which graphs read.
        query_start_loc_group: int32 [max_num_reqs + 1] for each draft step, likewise.
        arange: int32, 0, 1, 2, …
        kernel_block_size: tokens per block of the block table.
        net_num_new_slots_per_request: 1 if draft step 1 also reads the token sampled last.
    """

    model: Any
    num_speculative_tokens: int
    max_model_len: int
    input_ids: torch.Tensor
    token_indices_to_sample: torch.Tensor
    positions: torch.Tensor
    hidden_states: torch.Tensor
    arange: torch.Tensor
    seq_lens_group: list[torch.Tensor]
    query_start_loc_group: list[torch.Tensor]
    kernel_block_size: int
    net_num_new_slots_per_request: int
    dcp_size: int
    use_cuda_graph: bool
    use_async_scheduling: bool
    use_compress: bool
    use_sparse: bool
    _share_mtp_indices: bool
    draft_model_config: Any
    compilation_config: Any
    pass_hidden_states_to_model: bool
    uses_mrope: bool
    supports_mm_inputs: bool
    needs_extra_input_slots: bool
    inputs_embeds: torch.Tensor
    parallel_drafting: bool
    _get_positions: Callable[[int], torch.Tensor]
    _set_positions: Callable[[int, torch.Tensor], None]
    shallow_copy_metadata: Callable[[Any], Any]
