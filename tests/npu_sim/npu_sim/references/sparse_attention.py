"""DeepSeek V3.2's sparse attention: an indexer selects tokens, and MLA attends to these alone.

Documented under aclnnLightningIndexer in CANN's API reference, in torch_npu's docstrings
(`npu_lightning_indexer`) and in vllm-ascend's `csrc/attention/sparse_flash_attention`. Of the
layouts, queries one after the other (TND) over paged keys (PA_BSND) have a reference.

float32 is accepted although a real NPU takes float16 and bfloat16 only: the simulator's tests
compare tokens with a CPU's, which needs float32.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from npu_sim.references.attention import attend
from npu_sim.references.checks import (
    FLOATS,
    refuse,
    require,
    require_choice,
    require_dtype,
    require_same_dtype,
    require_shape,
)
from npu_sim.references.mla import LATENT_SIZE, ROPE_SIZE
from npu_sim.references.registry import reference

INDEX_SIZE = 128
MAX_INDEX_HEADS = 64
MAX_BLOCK_SIZE = 1024
NO_LIMIT = 2**63 - 1
# The number of tokens that may be selected; up to 2048 it may be any.
COUNTS = (*range(1, 2049), 3072, 4096, 5120, 6144, 7168, 8192)


@dataclass(frozen=True)
class Sequence:
    """One sequence of a batch.

    Attributes:
        rows: its rows of the queries.
        blocks: its blocks of the cache, in order, int64.
        seen: how many keys each row sees, int64 [rows].
        length: how many keys there are.
    """

    rows: slice
    blocks: torch.Tensor
    seen: torch.Tensor
    length: int

    def keys(self, cache: torch.Tensor) -> torch.Tensor:
        """Give its rows of a cache [blocks, block_size, heads, size], one after the other."""
        return cache[self.blocks].flatten(0, 1)[: self.length]


def _sequences(
    query: torch.Tensor,  # [tokens, heads, size]
    cache: torch.Tensor,  # [blocks, block_size, 1, size]
    ends: torch.Tensor | None,  # [batch], int32: where each sequence's rows end
    lengths: torch.Tensor | None,  # [batch], int32: how many keys each has
    block_table: torch.Tensor | None,  # [batch, max_blocks], int32
    *,
    causal: bool,
) -> Iterator[Sequence]:
    """Check what says which rows and keys belong together, and give each sequence with rows."""
    if ends is None or lengths is None or block_table is None:
        require(False, "TND over PA_BSND needs both sequence lengths and a block table")
        return
    for name, ints in (("query", ends), ("key", lengths), ("block_table", block_table)):
        require_dtype(name if name == "block_table" else f"lengths of {name}", ints, (torch.int32,))
    batch = ends.numel()
    require_shape("lengths of query", ends, batch)
    require_shape("lengths of key", lengths, batch)
    require_shape("block_table", block_table, batch, None)
    block_size = cache.shape[1]
    require(
        0 < block_size <= MAX_BLOCK_SIZE and block_size % 16 == 0,
        f"block_size is {block_size}; valid: multiples of 16 to {MAX_BLOCK_SIZE}",
    )
    first, most = 0, block_table.shape[1] * block_size
    for i, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
        require(first <= end <= query.shape[0], f"rows of sequence {i} end at {end}")
        require(0 <= length <= most, f"sequence {i} has {length} keys; block_table holds {most}")
        rows, first = slice(first, end), end
        count = rows.stop - rows.start
        if not count:
            continue
        blocks = block_table[i, : -(-length // block_size)].long()
        require(
            bool(((blocks >= 0) & (blocks < cache.shape[0])).all()),
            f"block_table[{i}] names a block beyond {cache.shape[0]}",
        )
        last = torch.arange(count, device=query.device) + (length - count + 1)
        seen = last.clamp(min=0) if causal else torch.full_like(last, length)
        yield Sequence(rows, blocks, seen, length)


@reference("npu::npu_lightning_indexer")
def lightning_indexer(
    query: torch.Tensor,  # [tokens, heads, 128]
    key: torch.Tensor,  # [blocks, block_size, 1, 128]
    weights: torch.Tensor,  # [tokens, heads]
    *,
    actual_seq_lengths_query: torch.Tensor | None = None,  # [batch], int32, running sums
    actual_seq_lengths_key: torch.Tensor | None = None,  # [batch], int32
    block_table: torch.Tensor | None = None,  # [batch, max_blocks], int32
    layout_query: str = "BSND",
    layout_key: str = "BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    pre_tokens: int = NO_LIMIT,
    next_tokens: int = NO_LIMIT,
    return_value: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Select the keys with the largest sums over heads of weight * ReLU(query * key).

    A row sees the keys up to its own (sparse_mode 3) or all (0). Where scores are equal the earlier
    key comes first.

    Returns:
        The places of the selected keys, best first and then -1, int32 [tokens, 1, sparse_count];
        of rows beyond the sequences (undefined on a real NPU) all are -1. And an empty tensor.
    """
    require_choice("layout_query", layout_query, ("TND",))
    require_choice("layout_key", layout_key, ("PA_BSND",))
    require_choice("sparse_mode", sparse_mode, (0, 3))
    require(sparse_count in COUNTS, f"sparse_count is {sparse_count}; valid: 1 to 2048, and more")
    require_choice("pre_tokens", pre_tokens, (NO_LIMIT,))
    require_choice("next_tokens", next_tokens, (NO_LIMIT,))
    refuse(return_value=return_value)
    require_dtype("query", query, FLOATS)
    require_same_dtype(query=query, key=key)
    if weights.dtype != torch.float32:
        require_same_dtype(query=query, weights=weights)
    require_shape("query", query, None, None, INDEX_SIZE)
    require_shape("key", key, None, None, 1, INDEX_SIZE)
    require_shape("weights", weights, *query.shape[:2])
    heads = query.shape[1]
    require(1 <= heads <= MAX_INDEX_HEADS, f"{heads} heads; valid: 1 to {MAX_INDEX_HEADS}")
    require(query.numel() > 0 and key.numel() > 0, "query and key must not be empty")
    selected = query.new_full((query.shape[0], 1, sparse_count), -1, dtype=torch.int32)
    for one in _sequences(
        query,
        key,
        actual_seq_lengths_query,
        actual_seq_lengths_key,
        block_table,
        causal=sparse_mode == 3,
    ):
        keys = one.keys(key)[:, 0].float()
        products = torch.matmul(query[one.rows].float(), keys.T).relu()
        scores = (products * weights[one.rows].float().unsqueeze(-1)).sum(1)
        unseen = torch.arange(one.length, device=key.device) >= one.seen.unsqueeze(-1)
        scores = scores.masked_fill(unseen, float("-inf"))
        ordered = scores.sort(dim=-1, descending=True, stable=True)
        places = ordered.indices.masked_fill(ordered.values == float("-inf"), -1)
        count = min(sparse_count, one.length)
        selected[one.rows, 0, :count] = places[:, :count].to(torch.int32)
    return selected, query.new_empty(0)


def _visible(
    indices: torch.Tensor,  # [rows, selected], int32: places of keys, then -1
    one: Sequence,
) -> torch.Tensor:
    """Give which keys each row of a sequence attends to, [rows, length] bool.

    As in the kernel (`arch22/sparse_flash_attention_kernel_mla.h`), a row that sees n keys reads
    only its first n selections, and leaves out keys that it does not see.
    """
    is_given = indices >= 0
    in_front = is_given.long().cumprod(-1).bool()
    require(torch.equal(is_given, in_front), "sparse_indices has a place behind a -1")
    require(int(indices.max()) < one.length, f"sparse_indices goes beyond {one.length} keys")
    columns = torch.arange(indices.shape[1], device=indices.device)
    seen = one.seen.unsqueeze(-1)
    used = is_given & (columns < seen) & (indices < seen)
    times = torch.zeros(len(indices), one.length + 1, dtype=torch.int32, device=indices.device)
    places = indices.masked_fill(~used, one.length).long()
    times.scatter_add_(1, places, torch.ones_like(indices))
    times = times[:, : one.length]
    require(int(times.max()) <= 1, "sparse_indices names a key twice")
    return times > 0


def _attention_meta(
    query: torch.Tensor, *_: object, **__: object
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    empty = torch.empty(0, dtype=torch.float32, device=query.device)
    return torch.empty(query.shape, dtype=query.dtype, device=query.device), empty, empty.clone()


@reference("_C_ascend::npu_sparse_flash_attention", meta=_attention_meta)
def sparse_flash_attention(
    query: torch.Tensor,  # [tokens, heads, 512]
    key: torch.Tensor,  # [blocks, block_size, 1, 512]
    value: torch.Tensor,  # key's shape
    sparse_indices: torch.Tensor,  # [tokens, 1, selected], int32: places of keys, then -1
    scale_value: float,
    *,
    block_table: torch.Tensor | None = None,  # [batch, max_blocks], int32
    actual_seq_lengths_query: torch.Tensor | None = None,  # [batch], int32, running sums
    actual_seq_lengths_kv: torch.Tensor | None = None,  # [batch], int32
    query_rope: torch.Tensor | None = None,  # [tokens, heads, 64]
    key_rope: torch.Tensor | None = None,  # [blocks, block_size, 1, 64]
    sparse_block_size: int = 1,
    layout_query: str = "BSND",
    layout_kv: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = NO_LIMIT,
    next_tokens: int = NO_LIMIT,
    attention_mode: int = 2,
    return_softmax_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attend with absorbed MLA to the selected keys.

    Returns:
        [tokens, heads, 512] in query's dtype, 0 in rows beyond the sequences (undefined on a real
        NPU), and two empty tensors.
    """
    require_choice("layout_query", layout_query, ("TND",))
    require_choice("layout_kv", layout_kv, ("PA_BSND",))
    require_choice("sparse_mode", sparse_mode, (0, 3))
    require_choice("sparse_block_size", sparse_block_size, (1,))
    require_choice("attention_mode", attention_mode, (2,))
    require_choice("pre_tokens", pre_tokens, (NO_LIMIT,))
    require_choice("next_tokens", next_tokens, (NO_LIMIT,))
    require_choice("return_softmax_lse", return_softmax_lse, (False,))
    require_dtype("query", query, FLOATS)
    require_same_dtype(query=query, key=key, value=value, query_rope=query_rope, key_rope=key_rope)
    require_dtype("sparse_indices", sparse_indices, (torch.int32,))
    require_shape("query", query, None, None, LATENT_SIZE)
    require_shape("key", key, None, None, 1, LATENT_SIZE)
    require_shape("value", value, *key.shape)
    require_shape("sparse_indices", sparse_indices, query.shape[0], 1, None)
    heads = query.shape[1]
    require(1 <= heads <= 64 or heads == 128, f"{heads} heads; valid: 1 to 64, and 128")
    require(
        query.numel() > 0 and key.numel() > 0 and sparse_indices.numel() > 0,
        "query, key and sparse_indices must not be empty",
    )
    require(
        (query_rope is None) == (key_rope is None),
        "query_rope and key_rope must be given together",
    )
    if query_rope is not None and key_rope is not None:
        require_shape("query_rope", query_rope, *query.shape[:2], ROPE_SIZE)
        require_shape("key_rope", key_rope, *key.shape[:3], ROPE_SIZE)
    out = torch.zeros(query.shape, dtype=query.dtype, device=query.device)
    for one in _sequences(
        query,
        key,
        actual_seq_lengths_query,
        actual_seq_lengths_kv,
        block_table,
        causal=sparse_mode == 3,
    ):
        if not one.length:
            continue
        queries, keys = query[one.rows], one.keys(key)
        if query_rope is not None and key_rope is not None:
            queries = torch.cat((queries, query_rope[one.rows]), -1)
            keys = torch.cat((keys, one.keys(key_rope)), -1)
        masked = ~_visible(sparse_indices[one.rows, 0], one)
        out[one.rows], _ = attend(queries, keys, one.keys(value), scale_value, masked)
    empty = torch.empty(0, dtype=torch.float32, device=query.device)
    return out, empty, empty.clone()
