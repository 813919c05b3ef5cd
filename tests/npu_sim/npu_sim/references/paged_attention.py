"""ATB's paged attention: one query token per sequence over a paged cache.

Documented as PagedAttentionOperation in the Ascend Transformer Boost manual.
"""

import torch

from npu_sim.references.attention import attend
from npu_sim.references.checks import (
    FLOATS,
    require,
    require_dtype,
    require_same_dtype,
    require_shape,
)
from npu_sim.references.registry import reference


@reference("atb::_npu_paged_attention")
def paged_attention(  # noqa: PLR0917 - the schema
    query: torch.Tensor,  # [num_seqs, heads, size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, kv_heads, size]
    value_cache: torch.Tensor,  # [num_blocks, block_size, kv_heads, value_size]
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,  # [num_seqs, max_blocks], int32
    context_lens: torch.Tensor,  # [num_seqs], int32, on the host or the device
    out: torch.Tensor,  # query's number of elements with value_size
    *,
    workspace: torch.Tensor | None = None,
) -> None:
    """Attend with each token to its own sequence's cache, into `out`.

    A sequence of length 0, as padding has it, gives 0. Rows of `out` beyond the sequences stay.
    """
    require_dtype("query", query, FLOATS)
    require_same_dtype(query=query, key_cache=key_cache, value_cache=value_cache, out=out)
    for name, ints in (("block_table", block_table), ("context_lens", context_lens)):
        require_dtype(name, ints, (torch.int32,))
    require(query.dim() == 3 and query.shape[1] == num_heads, "query must be [seqs, heads, size]")
    require(num_heads % num_kv_heads == 0, f"{num_heads} heads over {num_kv_heads} kv heads")
    require_shape("key_cache", key_cache, None, None, num_kv_heads, query.shape[2])
    require_shape("value_cache", value_cache, *key_cache.shape[:2], num_kv_heads, None)
    lengths = context_lens.tolist()
    num_seqs, block_size = len(lengths), key_cache.shape[1]
    require(
        num_seqs <= query.shape[0] and num_seqs <= block_table.shape[0],
        f"{num_seqs} context_lens, {query.shape[0]} queries, {block_table.shape[0]} block rows",
    )
    require(out.shape[0] >= num_seqs, f"out has {out.shape[0]} rows for {num_seqs} sequences")
    for i, length in enumerate(lengths):
        limit = block_table.shape[1] * block_size
        require(0 <= length <= limit, f"context_lens[{i}] is {length}; block_table holds {limit}")
        if length == 0:
            out[i] = 0
            continue
        blocks = block_table[i, : -(-length // block_size)].long()
        require(
            int(blocks.min()) >= 0 and int(blocks.max()) < key_cache.shape[0],
            f"block_table[{i}] names a block beyond {key_cache.shape[0]}",
        )
        key, value = (c[blocks].flatten(0, 1)[:length] for c in (key_cache, value_cache))
        result, _ = attend(query[i : i + 1], key, value, scale_value)
        out[i] = result.reshape(out.shape[1:])


@reference("atb::_npu_paged_attention_get_workspace", host_only=True)
def paged_attention_get_workspace(  # noqa: PLR0917 - the schema
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Give a workspace; the reference needs none, so one byte."""
    return torch.empty(1, dtype=torch.uint8, device=query.device)
