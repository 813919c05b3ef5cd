"""vllm-ascend's kernels of slots and of penalties, which Triton's interpreter takes too long for.

Every step launches the first, and every step of a request with penalties the others, at some
milliseconds each. These compute the same, and a test holds them to the interpreter. `triton_bridge`
uses them for kernels of these names with these parameters, and interprets every other.
"""

import torch

from npu_sim.references.checks import require, require_dtype
from npu_sim.references.registry import reference


@reference("triton::_compute_slot_mapping_kernel")
def compute_slot_mapping(  # noqa: PLR0917 - the kernel's parameters
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc_ptr: torch.Tensor,  # [requests + 1], int32
    positions_ptr: torch.Tensor,  # [num_tokens], int64
    block_table_ptr: torch.Tensor,  # [requests or more, blocks], int32
    block_table_stride: int,
    block_size: int,
    slot_mapping_ptr: torch.Tensor,  # [max_num_tokens or more], int32; changed in place
    KV_CACHE_BLOCK_SIZE: int,  # noqa: N803 - the kernel's name
    BLOCKS_PER_KV_BLOCK: int,  # noqa: N803
    TOTAL_CP_WORLD_SIZE: int,  # noqa: N803
    TOTAL_CP_RANK: int,  # noqa: N803
    CP_KV_CACHE_INTERLEAVE_SIZE: int,  # noqa: N803
    PAD_ID: int,  # noqa: N803
    TILE_BLOCK_SIZE: int,  # noqa: N803
    BLOCK_TABLE_WINDOW_SIZE: int,  # noqa: N803
    IS_CIRCULAR: bool = False,  # noqa: N803
) -> None:
    """Write the slot of each token, and PAD_ID behind the last one."""
    require(
        TOTAL_CP_WORLD_SIZE == 1,
        f"TOTAL_CP_WORLD_SIZE is {TOTAL_CP_WORLD_SIZE}; valid: 1, other sizes have other code",
    )
    lengths = query_start_loc_ptr.diff()
    begin, end = int(query_start_loc_ptr[0]), int(query_start_loc_ptr[-1])
    request = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    position = positions_ptr[begin:end].int()
    block = torch.zeros_like(position) if IS_CIRCULAR else position // block_size
    # The kernel reads a block behind the table's row as 0.
    inside = block < block_table_stride
    at = request * block_table_stride + torch.where(inside, block, 0)
    number = torch.where(inside, block_table_ptr.view(-1)[at], 0)
    slots = number * block_size + position % block_size
    if IS_CIRCULAR:
        slots = torch.where(position >= 0, slots, PAD_ID)
    slot_mapping_ptr[begin:end] = slots
    slot_mapping_ptr[num_tokens:max_num_tokens] = PAD_ID


@reference("triton::token_bin_counts_and_mask_kernel")
def token_bin_counts(  # noqa: PLR0917 - the kernel's parameters
    tokens_ptr: torch.Tensor,  # [requests, tokens]; what is no token is vocab_size or more
    tokens_batch_stride: int,
    tokens_seq_stride: int,
    batch_size: int,
    seq_len: int,
    vocab_size: int,
    bin_counts_ptr: torch.Tensor,  # [requests, vocab_size], int32; changed in place
    counts_batch_stride: int,
    counts_vocab_stride: int,
    total_blocks: int,
    SEQ_BLOCK: int,  # noqa: N803 - the kernel's name
) -> None:
    """Add up how often each token stands in each row."""
    tokens = tokens_ptr[:batch_size, :seq_len].long()
    counted = tokens < vocab_size
    ones = counted.to(bin_counts_ptr.dtype)
    bin_counts_ptr.scatter_add_(1, torch.where(counted, tokens, 0), ones)


@reference("triton::apply_all_penalties_kernel")
def apply_all_penalties(  # noqa: PLR0917 - the kernel's parameters
    logits_ptr: torch.Tensor,  # [requests, vocab_size], float32; changed in place
    prompt_mask_ptr: torch.Tensor,  # [requests, vocab_size], bool
    output_mask_ptr: torch.Tensor,  # likewise
    output_bin_counts_ptr: torch.Tensor,  # [requests, vocab_size], int32
    repetition_penalties_ptr: torch.Tensor,  # [requests]
    frequency_penalties_ptr: torch.Tensor,  # [requests]
    presence_penalties_ptr: torch.Tensor,  # [requests]
    num_seqs: int,
    vocab_size: int,
    stride_logits_seq: int,
    stride_logits_vocab: int,
    stride_prompt_mask_seq: int,
    stride_prompt_mask_vocab: int,
    stride_output_mask_seq: int,
    stride_output_mask_vocab: int,
    stride_bin_counts_seq: int,
    stride_bin_counts_vocab: int,
    BLOCK_SIZE: int,  # noqa: N803 - the kernel's name
) -> None:
    """Apply repetition, frequency and presence penalties, in this order."""
    require_dtype("logits_ptr", logits_ptr, (torch.float32,))
    repetition, frequency, presence = (
        penalties[:num_seqs, None]
        for penalties in (
            repetition_penalties_ptr,
            frequency_penalties_ptr,
            presence_penalties_ptr,
        )
    )
    factor = torch.where(prompt_mask_ptr | output_mask_ptr, repetition, 1.0)
    changed = logits_ptr * torch.where(logits_ptr > 0, 1.0 / factor, factor)
    changed -= frequency * output_bin_counts_ptr.float()
    changed -= presence * output_mask_ptr.float()
    logits_ptr.copy_(changed)
