"""DeepSeek V4's attention over a window of keys and over compressed ones, and its indexer.

Documented in vllm-ascend's `csrc/attention/sparse_attn_sharedkv/README.md` and
`csrc/attention/quant_lightning_indexer_v2/README.md`. Of the layouts, queries one after the other
(TND) over paged keys have a reference. A compressed key of `cmp_ratio` tokens is seen by queries
from its last token on. float32, and other sizes and numbers of heads than documented are accepted:
the simulator's tests compare tokens of small models.
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
from npu_sim.references.registry import reference

# How many numbers say to the kernels how work is split over cores. Here they are all 0.
SPLIT_SIZE = 1024
INT8 = 2
RATIOS = (1, 4, 128)


@dataclass(frozen=True)
class Sequence:
    """One sequence of a batch.

    Attributes:
        number: of the sequence.
        rows: its rows of the queries.
        places: the position of each row in the text, int64 [rows].
        length: how many tokens its text has.
    """

    number: int
    rows: slice
    places: torch.Tensor
    length: int


def _sequences(
    query: torch.Tensor,  # [tokens, heads, size]
    starts: torch.Tensor | None,  # [batch + 1], int32, running sums
    lengths: torch.Tensor | None,  # [batch], int32 or int64: tokens of each text
) -> Iterator[Sequence]:
    """Check what says which rows belong together, and give each sequence with rows."""
    if starts is None or lengths is None:
        require(False, "cu_seqlens_q and the lengths of the keys are needed")
        return
    require_dtype("cu_seqlens_q", starts, (torch.int32,))
    bounds = starts.tolist()
    require_shape("the lengths of the keys", lengths, len(bounds) - 1)
    require(bounds[0] == 0, f"cu_seqlens_q begins with {bounds[0]}; valid: 0")
    for number, length in enumerate(lengths.tolist()):
        first, end = bounds[number], bounds[number + 1]
        require(first <= end <= query.shape[0], f"rows of sequence {number}: {first} to {end}")
        if first < end:
            places = torch.arange(length - (end - first), length, device=query.device)
            yield Sequence(number, slice(first, end), places, length)


def _paged(
    cache: torch.Tensor,  # [blocks, block_size, ...]
    table: torch.Tensor,  # [max_blocks], int32
    count: int,
) -> torch.Tensor:
    """Give the first `count` rows of a sequence."""
    used = -(-count // cache.shape[1])
    require(used <= table.numel(), f"{count} keys; the block table holds {table.numel()} blocks")
    blocks = table[:used].long()
    inside = (blocks >= 0) & (blocks < cache.shape[0])
    require(bool(inside.all()), f"the block table names a block beyond {cache.shape[0]}")
    return cache[blocks].flatten(0, 1)[:count]


def _split_meta(*_: object, device: str = "npu", **__: object) -> torch.Tensor:
    return torch.empty(SPLIT_SIZE, dtype=torch.int32, device="meta")


@reference("_C_ascend::npu_quant_lightning_indexer_v2_metadata", meta=_split_meta)
def quant_lightning_indexer_v2_metadata(
    num_heads_q: int,
    num_heads_k: int,
    head_dim: int,
    topk: int,
    quant_mode: int,
    *,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    cmp_residual_k: torch.Tensor | None = None,
    batch_size: int = 0,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    layout_q: str = "TND",
    layout_k: str = "PA_BBND",
    mask_mode: int = 3,
    cmp_ratio: int = 1,
    device: str = "npu",
) -> torch.Tensor:
    """Give how work is split over cores, int32 [1024]; the reference splits nothing."""
    require(cu_seqlens_q is not None, "cu_seqlens_q is needed")
    assert cu_seqlens_q is not None
    return torch.zeros(SPLIT_SIZE, dtype=torch.int32, device=cu_seqlens_q.device)


def _indexer_meta(
    query: torch.Tensor, key: torch.Tensor, *others: object, topk: int = 0, **__: object
) -> tuple[torch.Tensor, torch.Tensor]:
    count = others[3] if len(others) > 3 else topk
    selected = query.new_empty((query.shape[0], 1, count), dtype=torch.int32)
    return selected, query.new_empty(0, dtype=torch.bfloat16)


@reference("_C_ascend::npu_quant_lightning_indexer_v2", meta=_indexer_meta)
def quant_lightning_indexer_v2(
    query: torch.Tensor,  # [tokens, heads, 128], int8
    key: torch.Tensor,  # [blocks, block_size, 1, 128], int8
    weights: torch.Tensor,  # [tokens, heads], float16
    query_dequant_scale: torch.Tensor,  # [tokens, heads], float16
    key_dequant_scale: torch.Tensor,  # [blocks, block_size, 1], float16
    topk: int,
    quant_mode: int,
    *,
    cu_seqlens_q: torch.Tensor | None = None,  # [batch + 1], int32
    cu_seqlens_k: torch.Tensor | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,  # [batch], int32: how many keys
    cmp_residual_k: torch.Tensor | None = None,  # [batch], int32: tokens behind the last key
    block_table: torch.Tensor | None = None,  # [batch, max_blocks], int32
    output_idx_offset: torch.Tensor | None = None,
    metadata: torch.Tensor | None = None,  # int32 [1024]
    max_seqlen_q: int = -1,
    layout_q: str = "TND",
    layout_k: str = "PA_BBND",
    mask_mode: int = 3,
    cmp_ratio: int = 4,
    return_value: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Select the keys with the largest sums over heads of weight * ReLU(scale * query * key).

    Where scores are equal the earlier key comes first.

    Returns:
        The places of the selected keys, best first and then -1, int32 [tokens, 1, topk]; and an
        empty tensor.
    """
    refuse(cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, output_idx_offset=output_idx_offset)
    refuse(return_value=return_value)
    require_choice("quant_mode", quant_mode, (INT8,))
    require_choice("layout_q", layout_q, ("TND",))
    require_choice("layout_k", layout_k, ("PA_BBND",))
    require_choice("mask_mode", mask_mode, (3,))
    require_choice("cmp_ratio", cmp_ratio, RATIOS)
    require(1 <= topk <= 2048, f"topk is {topk}; valid: 1 to 2048")
    for name, tensor in (("query", query), ("key", key)):
        require_dtype(name, tensor, (torch.int8,))
    for name, tensor in (
        ("weights", weights),
        ("query_dequant_scale", query_dequant_scale),
        ("key_dequant_scale", key_dequant_scale),
    ):
        require_dtype(name, tensor, (torch.float16,))
    require_shape("query", query, None, None, None)
    require_shape("key", key, None, None, 1, query.shape[2])
    require_shape("weights", weights, *query.shape[:2])
    require_shape("query_dequant_scale", query_dequant_scale, *query.shape[:2])
    require_shape("key_dequant_scale", key_dequant_scale, *key.shape[:3])
    if seqused_k is None or cmp_residual_k is None or block_table is None or metadata is None:
        require(False, "seqused_k, cmp_residual_k, block_table and metadata are needed")
        raise AssertionError
    require_shape("metadata", metadata, SPLIT_SIZE)
    selected = query.new_full((query.shape[0], 1, topk), -1, dtype=torch.int32)
    lengths = seqused_k * cmp_ratio + cmp_residual_k
    for one in _sequences(query, cu_seqlens_q, lengths):
        count = one.length // cmp_ratio
        table = block_table[one.number]
        keys = _paged(key, table, count)[:, 0].float()
        key_scales = _paged(key_dequant_scale, table, count)[:, 0].float()
        products = torch.matmul(query[one.rows].float(), keys.T) * key_scales
        products = (products * query_dequant_scale[one.rows].float().unsqueeze(-1)).relu()
        scores = (products * weights[one.rows].float().unsqueeze(-1)).sum(1)
        seen = (one.places + 1) // cmp_ratio
        unseen = torch.arange(count, device=query.device) >= seen.unsqueeze(-1)
        scores = scores.masked_fill(unseen, float("-inf"))
        ordered = scores.sort(dim=-1, descending=True, stable=True)
        places = ordered.indices.masked_fill(ordered.values == float("-inf"), -1)
        kept = min(topk, count)
        selected[one.rows, 0, :kept] = places[:, :kept].to(torch.int32)
    return selected, query.new_empty(0, dtype=torch.bfloat16)


@reference("_C_ascend::npu_sparse_attn_sharedkv_metadata", meta=_split_meta)
def sparse_attn_sharedkv_metadata(  # noqa: PLR0917 - the schema
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_ori_kv: torch.Tensor | None = None,
    cu_seqlens_cmp_kv: torch.Tensor | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_kv: torch.Tensor | None = None,
    batch_size: int = 0,
    max_seqlen_q: int = 0,
    max_seqlen_kv: int = 0,
    ori_topk: int = 0,
    cmp_topk: int = 0,
    cmp_ratio: int = 4,
    ori_mask_mode: int = 4,
    cmp_mask_mode: int = 3,
    ori_win_left: int = 128,
    ori_win_right: int = 0,
    layout_q: str = "BSND",
    layout_kv: str = "PA_ND",
    has_ori_kv: bool = True,
    has_cmp_kv: bool = True,
    device: str = "npu",
) -> torch.Tensor:
    """Give how work is split over cores, int32 [1024]; the reference splits nothing."""
    require(cu_seqlens_q is not None, "cu_seqlens_q is needed")
    assert cu_seqlens_q is not None
    return torch.zeros(SPLIT_SIZE, dtype=torch.int32, device=cu_seqlens_q.device)


def _attention_meta(q: torch.Tensor, **_: object) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), q.new_empty(0, dtype=torch.float32)


@reference("_C_ascend::npu_sparse_attn_sharedkv", meta=_attention_meta)
def sparse_attn_sharedkv(
    q: torch.Tensor,  # [tokens, heads, size]
    *,
    ori_kv: torch.Tensor | None = None,  # [blocks, block_size, 1, size]
    cmp_kv: torch.Tensor | None = None,  # [blocks, block_size, 1, size]
    ori_sparse_indices: torch.Tensor | None = None,
    cmp_sparse_indices: torch.Tensor | None = None,  # [tokens, 1, selected], int32
    ori_block_table: torch.Tensor | None = None,  # [batch, max_blocks], int32
    cmp_block_table: torch.Tensor | None = None,  # [batch, max_blocks], int32
    cu_seqlens_q: torch.Tensor | None = None,  # [batch + 1], int32
    cu_seqlens_ori_kv: torch.Tensor | None = None,  # without effect
    cu_seqlens_cmp_kv: torch.Tensor | None = None,  # without effect
    seqused_q: torch.Tensor | None = None,  # without effect
    seqused_kv: torch.Tensor | None = None,  # [batch], int32: tokens of each text
    sinks: torch.Tensor | None = None,  # [heads], float32
    metadata: torch.Tensor | None = None,  # int32 [1024]
    softmax_scale: float = 0,
    cmp_ratio: int = 0,
    ori_mask_mode: int = 4,
    cmp_mask_mode: int = 3,
    ori_win_left: int = 128,
    ori_win_right: int = 0,
    layout_q: str = "BSND",
    layout_kv: str = "PA_ND",
    return_softmax_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to a window of a text's keys, and to its compressed ones or the selected of them.

    Keys are the values, too.

    Returns:
        [tokens, heads, size] in q's dtype, 0 in rows beyond the sequences (undefined on a real
        NPU), and an empty tensor.
    """
    refuse(ori_sparse_indices=ori_sparse_indices, return_softmax_lse=return_softmax_lse)
    require_choice("layout_q", layout_q, ("TND",))
    require_choice("layout_kv", layout_kv, ("PA_ND",))
    require_choice("ori_mask_mode", ori_mask_mode, (4,))
    require_choice("cmp_mask_mode", cmp_mask_mode, (3,))
    require_choice("ori_win_right", ori_win_right, (0,))
    require_choice("cmp_ratio", cmp_ratio, RATIOS)
    require_dtype("q", q, FLOATS)
    require_same_dtype(q=q, ori_kv=ori_kv, cmp_kv=cmp_kv)
    if ori_kv is None or ori_block_table is None or metadata is None:
        require(False, "ori_kv, ori_block_table and metadata are needed")
        raise AssertionError
    require(q.numel() > 0, "q must not be empty")
    require_shape("metadata", metadata, SPLIT_SIZE)
    require_shape("ori_kv", ori_kv, None, None, 1, q.shape[2])
    require((cmp_kv is None) == (cmp_block_table is None), "cmp_kv needs its block table")
    if sinks is not None:
        require_dtype("sinks", sinks, (torch.float32,))
        require_shape("sinks", sinks, q.shape[1])
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    for one in _sequences(q, cu_seqlens_q, seqused_kv):
        keys = _paged(ori_kv, ori_block_table[one.number], one.length)
        places = one.places.unsqueeze(-1)
        columns = torch.arange(one.length, device=q.device)
        masked = (columns > places) | (columns < places - ori_win_left)
        if cmp_kv is not None and cmp_block_table is not None:
            require_shape("cmp_kv", cmp_kv, None, None, 1, q.shape[2])
            count = one.length // cmp_ratio
            keys = torch.cat((keys, _paged(cmp_kv, cmp_block_table[one.number], count)))
            chosen = None if cmp_sparse_indices is None else cmp_sparse_indices[one.rows, 0]
            seen = _seen(chosen, (one.places + 1) // cmp_ratio, count)
            masked = torch.cat((masked, ~seen), -1)
        # What nobody sees may be anything, such as another cache's numbers in a block that was
        # given back: the kernel does not read it, and 0 times NaN would be NaN.
        keys = keys.masked_fill(masked.all(0)[:, None, None], 0)
        out[one.rows], _ = attend(q[one.rows], keys, keys, softmax_scale, masked, sinks)
    return out, q.new_empty(0, dtype=torch.float32)


def _seen(
    chosen: torch.Tensor | None,  # [rows, selected], int32: places of keys, then -1
    counts: torch.Tensor,  # [rows]: how many keys each row may see
    count: int,
) -> torch.Tensor:
    """Give which compressed keys each row sees, [rows, count] bool."""
    causal = torch.arange(count, device=counts.device) < counts.unsqueeze(-1)
    if chosen is None:
        return causal
    require_dtype("cmp_sparse_indices", chosen, (torch.int32,))
    require(int(chosen.max()) < count or count == 0, f"an index is beyond {count} keys")
    times = torch.zeros(len(chosen), count + 1, dtype=torch.int32, device=chosen.device)
    places = chosen.long().masked_fill(chosen < 0, count)
    times.scatter_add_(1, places, torch.ones_like(chosen))
    times = times[:, :count]
    require(not count or int(times.max()) <= 1, "cmp_sparse_indices names a key twice")
    return causal & (times > 0)
