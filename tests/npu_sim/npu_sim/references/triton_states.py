"""vllm-ascend's copies of states, which Triton's interpreter takes too long for.

The kernels copy some thousand bytes at a time, at a millisecond each. `triton_bridge` uses these
for kernels of their names with these parameters, and interprets every other.
"""

import ctypes

import torch

from npu_sim.references.checks import require
from npu_sim.references.registry import reference


@reference("triton::_gather_ssm_states_kernel")
def gather_ssm_states(  # noqa: PLR0917 - the kernel's parameters
    state_ptr: torch.Tensor,  # [blocks, ...], with gaps between blocks
    indices_ptr: torch.Tensor,  # [requests]
    has_initial_state_ptr: torch.Tensor,  # [requests], bool
    output_ptr: torch.Tensor,  # [requests, ...], written
    stride_state_batch: int,
    stride_indices: int,
    stride_has_initial_state: int,
    row_size: int,
    BLOCK_SIZE: int,  # noqa: N803 - the kernel's name
) -> None:
    """Copy the blocks of requests that have a state; the others' outputs are 0."""
    del stride_state_batch, stride_indices, stride_has_initial_state, row_size, BLOCK_SIZE
    starts = has_initial_state_ptr.bool().tolist()
    for request, block in enumerate(indices_ptr.tolist()):
        if starts[request]:
            output_ptr[request].copy_(state_ptr[block])
        else:
            output_ptr[request].zero_()


@reference("triton::_scatter_ssm_states_kernel")
def scatter_ssm_states(
    state_ptr: torch.Tensor,  # [blocks, ...], with gaps between blocks; written
    indices_ptr: torch.Tensor,  # [requests]
    source_ptr: torch.Tensor,  # [requests, ...]
    stride_state_batch: int,
    stride_indices: int,
    stride_source_batch: int,
    row_size: int,
    BLOCK_SIZE: int,  # noqa: N803 - the kernel's name
) -> None:
    """Copy the state of each request into its block."""
    del stride_state_batch, stride_indices, stride_source_batch, row_size, BLOCK_SIZE
    for request, block in enumerate(indices_ptr.tolist()):
        state_ptr[block].copy_(source_ptr[request])


@reference("triton::batch_memcpy_kernel")
def batch_memcpy(
    src_ptrs: torch.Tensor,  # [copies], addresses
    dst_ptrs: torch.Tensor,  # [copies], addresses
    sizes: torch.Tensor,  # [copies], bytes
    BLOCK_SIZE: int,  # noqa: N803 - the kernel's name
) -> None:
    """Copy memory; a target may overlap the end of its source, not the beginning."""
    del BLOCK_SIZE
    for source, into, size in zip(
        src_ptrs.tolist(), dst_ptrs.tolist(), sizes.tolist(), strict=True
    ):
        require(not source < into < source + size, "a target overlaps the beginning of its source")
        ctypes.memmove(into, source, size)
