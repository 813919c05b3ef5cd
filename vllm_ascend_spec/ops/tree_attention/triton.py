"""Attention along paths in a Triton kernel, and in another one that joins splits of the keys."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.triton_launch import num_cores, on_device, power_of_two, problem

__all__ = ["problem", "tree_attention"]

# The least that a GPU multiplies at once, in each direction.
SMALLEST_SIDE = 16
# Keys of a tile, and lanes of a program by the bytes of a query: all of its sums and queries are in
# registers. A lane is a row of one query head.
TILE = 32
LANES = {128: 64, 512: 32}
FEWEST_LANES = 16
# As many programs fit a multiprocessor at once, by their registers.
PROGRAMS_PER_CORE = 2
MOST_SPLITS = 16


def tree_attention(
    query: torch.Tensor,  # [num_tokens, num_heads, head_size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    value_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    output: torch.Tensor,  # [num_tokens, num_heads, head_size]
    seen: torch.Tensor,  # [num_tokens]
    query_start_loc: torch.Tensor,  # [num_reqs + 1]
    seq_lens: torch.Tensor,  # [num_reqs]
    block_table: torch.Tensor,  # [num_reqs, max_blocks]
    *,
    scale: float,
    soft_cap: float = 0.0,
    window: int = 0,
    sinks: torch.Tensor | None = None,  # [num_heads]
    is_batch_invariant: bool = False,
) -> None:
    """See :func:`vllm_ascend_spec.ops.tree_attention.tree_attention`."""
    from vllm_ascend_spec.ops.triton_kernels.tree_attention import attend_along_paths, join_splits

    num_tokens, num_heads, head_size = query.shape
    num_kv_heads = key_cache.shape[2]
    group = num_heads // num_kv_heads
    padded = max(power_of_two(head_size), SMALLEST_SIDE)
    lanes = max(lanes_of(padded * query.element_size()), power_of_two(group))
    rows = lanes // group
    # One block of rows more for each request, see ``find_rows``.
    num_blocks = num_tokens // rows + seq_lens.shape[0]
    splits = 1 if is_batch_invariant else splits_of(num_blocks * num_kv_heads, query.device)
    parts: tuple[torch.Tensor | None, ...] = (None, None, None)
    if splits > 1:
        scalars = query.new_empty((2, num_tokens, num_heads, splits), dtype=torch.float32)
        parts = (*scalars, scalars.new_empty((num_tokens, num_heads, splits, padded)))
    with on_device(query):
        attend_along_paths[(num_blocks, num_kv_heads, splits)](
            query,
            key_cache,
            value_cache,
            output,
            seen,
            query_start_loc,
            seq_lens,
            block_table,
            sinks,
            *parts,
            seq_lens.shape[0],
            scale,
            soft_cap,
            QUERY_STRIDES=query.stride()[:2],
            OUTPUT_STRIDES=output.stride()[:2],
            KEY_STRIDES=key_cache.stride()[:3],
            VALUE_STRIDES=value_cache.stride()[:3],
            TABLE_STRIDE=block_table.stride(0),
            BLOCK_SIZE=key_cache.shape[1],
            GROUP=group,
            HEAD_SIZE=head_size,
            HEAD_PADDED=padded,
            HAS_CAP=soft_cap != 0,
            WINDOW=window,
            ROWS=rows,
            LANES=lanes,
            TILE=TILE,
            SPLITS=splits,
        )
        if splits > 1:
            join_splits[(num_tokens, num_heads)](
                *parts,
                output,
                query_start_loc,
                seq_lens.shape[0],
                OUTPUT_STRIDES=output.stride()[:2],
                HEAD_SIZE=head_size,
                HEAD_PADDED=padded,
                SPLITS=splits,
            )


def lanes_of(num_bytes: int) -> int:
    """Return the number of lanes of a program, whose queries take so many bytes each."""
    return next((lanes for most, lanes in LANES.items() if num_bytes <= most), FEWEST_LANES)


def splits_of(num_programs: int, device: torch.device) -> int:
    """Return over how many programs keys are split, so that few requests fill a device.

    It depends only on shapes, so that a graph can capture it.
    """
    wanted = num_cores(device) * PROGRAMS_PER_CORE // num_programs
    # The largest power of two that is not more.
    return min(1 << max(wanted.bit_length() - 1, 0), MOST_SPLITS)
