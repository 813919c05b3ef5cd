"""Writing keys and values into the paged cache.

Documented under `npu_scatter_pa_kv_cache` in torch_npu's docstrings. A slot is
`block * block_size + offset`. The documentation allows slots from 0; vllm-ascend gives -1 to padded
tokens and relies on their being skipped, so negative slots are skipped here too. A slot beyond the
cache is an error here; a real NPU would write elsewhere.
"""

import torch

from npu_sim.references.checks import (
    FLOATS,
    INTS,
    fail,
    refuse,
    require,
    require_choice,
    require_dtype,
    require_same_dtype,
)
from npu_sim.references.registry import reference

CACHE_DTYPES = (*FLOATS, torch.int8, torch.uint8, torch.int16, torch.int32)


def _used(
    slots: torch.Tensor,  # [num_tokens]
    num_blocks: int,
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give the tokens with a slot, their blocks and their offsets, all int64."""
    tokens = (slots >= 0).nonzero().squeeze(1)
    used = slots[tokens].long()
    if used.numel():
        highest = int(used.max())
        if highest >= num_blocks * block_size:
            fail(f"slot {highest} is beyond {num_blocks} blocks of {block_size}")
    return tokens, used // block_size, used % block_size


def _check(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    require_dtype("key", key, CACHE_DTYPES)
    require_same_dtype(key=key, value=value, key_cache=key_cache, value_cache=value_cache)
    require_dtype("slot_mapping", slot_mapping, INTS)
    require(key.dim() == 3 and value.dim() == 3, "key and value must be [tokens, heads, size]")
    require(
        key.shape[:2] == value.shape[:2],
        f"key {tuple(key.shape)} and value {tuple(value.shape)} differ in tokens or heads",
    )
    require(
        key_cache.dim() == 4 and value_cache.dim() == 4, "key_cache and value_cache must be 4-D"
    )
    require(
        slot_mapping.shape == key.shape[:1],
        f"slot_mapping has shape {tuple(slot_mapping.shape)} for {key.shape[0]} tokens",
    )
    contiguous = all(t.is_contiguous() for t in (key, value, slot_mapping))
    require(contiguous, "key, value and slot_mapping must be contiguous")


def write_rows(
    rows: torch.Tensor,  # [tokens, heads, size]
    cache: torch.Tensor,  # [num_blocks, block_size, heads, size]
    slots: torch.Tensor,  # [tokens]
) -> None:
    require(
        cache.shape[2:] == rows.shape[1:],
        f"the cache holds rows of {tuple(cache.shape[2:])}, not {tuple(rows.shape[1:])}",
    )
    tokens, blocks, offsets = _used(slots, cache.shape[0], cache.shape[1])
    cache[blocks, offsets] = rows[tokens]


def _write_tiles(
    rows: torch.Tensor,  # [tokens, heads, size]
    cache: torch.Tensor,  # [num_blocks, heads * size / last, block_size, last]
    slots: torch.Tensor,  # [tokens]
) -> None:
    num_blocks, columns, block_size, last = cache.shape
    require(
        columns * last == rows.shape[1] * rows.shape[2],
        f"the cache holds rows of {columns} x {last}, not {tuple(rows.shape[1:])}",
    )
    tokens, blocks, offsets = _used(slots, num_blocks, block_size)
    cache[blocks, :, offsets] = rows[tokens].reshape(-1, columns, last)


@reference("npu::npu_scatter_pa_kv_cache")
def scatter_pa_kv_cache(
    key: torch.Tensor,  # [tokens, heads, key_size]
    value: torch.Tensor,  # [tokens, heads, value_size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, heads, key_size], or tiles (PA_NZ)
    value_cache: torch.Tensor,  # likewise with value_size
    slot_mapping: torch.Tensor,  # [tokens], int32 or int64
    *,
    compress_lens: torch.Tensor | None = None,
    compress_seq_offsets: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """Write each token's key and value into its slot, in place.

    The caches are rows with `cache_mode` "Norm" or None, tiles
    [num_blocks, heads * size / last, block_size, last] with "PA_NZ". Compressed writing
    (4-D keys) has no reference.
    """
    refuse(
        compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens
    )
    require_choice("cache_mode", cache_mode, (None, "Norm", "PA_NZ"))
    _check(key, value, key_cache, value_cache, slot_mapping)
    write = _write_tiles if cache_mode == "PA_NZ" else write_rows
    write(key, key_cache, slot_mapping)
    write(value, value_cache, slot_mapping)


@reference("_C_ascend::npu_scatter_pa_kv_cache")
def scatter_pa_kv_cache_by_mode(
    key: torch.Tensor,  # [tokens, heads, key_size]
    value: torch.Tensor,  # [tokens, heads, value_size]
    key_cache: torch.Tensor,  # [num_blocks, heads, block_size, key_size] with "NHSD"
    value_cache: torch.Tensor,  # likewise with value_size
    slot_mapping: torch.Tensor,  # [tokens], int32 or int64
    *,
    cache_mode: str = "Norm",
    scatter_mode: str = "None",
) -> None:
    """Do the same for a cache that keeps heads before tokens (`scatter_mode` "NHSD")."""
    require_choice("cache_mode", cache_mode, ("Norm",))
    require_choice("scatter_mode", scatter_mode, ("None", "NHSD"))
    if scatter_mode == "NHSD":
        key_cache, value_cache = key_cache.transpose(1, 2), value_cache.transpose(1, 2)
    _check(key, value, key_cache, value_cache, slot_mapping)
    write_rows(key, key_cache, slot_mapping)
    write_rows(value, value_cache, slot_mapping)


@reference("atb::_npu_reshape_and_cache")
def reshape_and_cache(
    key: torch.Tensor,  # [tokens, heads, key_size]
    value: torch.Tensor,  # [tokens, heads, value_size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, heads, key_size]
    value_cache: torch.Tensor,  # [num_blocks, block_size, heads, value_size]
    slot_indices: torch.Tensor,  # [tokens], int32
) -> None:
    """Write each token's key and value into its slot, in place (ATB's ReshapeAndCache).

    op-plugin (op_plugin/ops/atb/ReshapeAndCachAtb.cpp) copies what is not contiguous for ATB;
    vllm-ascend 0.23 hands over values that are part of a wider tensor.
    """
    require_dtype("slot_indices", slot_indices, (torch.int32,))
    key, value = key.contiguous(), value.contiguous()
    slots = slot_indices.contiguous()
    scatter_pa_kv_cache(key, value, key_cache, value_cache, slots, cache_mode="Norm")


@reference("atb::_npu_reshape_and_cache_siso")
def reshape_and_cache_siso(
    key: torch.Tensor,  # [tokens, heads, size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, heads, size]
    slot_indices: torch.Tensor,  # [tokens], int32
) -> None:
    """Do the same for one tensor alone."""
    require_dtype("slot_indices", slot_indices, (torch.int32,))
    _check(key, key, key_cache, key_cache, slot_indices)
    write_rows(key, key_cache, slot_indices)


@reference("npu::npu_scatter_nd_update_")
def scatter_nd_update_(
    input: torch.Tensor,
    indices: torch.Tensor,  # [..., depth], depth <= input.dim()
    updates: torch.Tensor,  # [..., sizes of input after depth], input's dtype
) -> torch.Tensor:
    """Write `updates` to the places that `indices` name, in place, and give the input.

    Indices out of range are documented as unsupported; here they are an error.
    """
    require_dtype("indices", indices, INTS)
    require_same_dtype(input=input, updates=updates)
    require(indices.dim() >= 2, f"indices has {indices.dim()} dimensions; valid: 2 or more")
    depth = indices.shape[-1]
    require(1 <= depth <= input.dim(), f"indices name {depth} of {input.dim()} dimensions")
    wanted = (*indices.shape[:-1], *input.shape[depth:])
    require(updates.shape == wanted, f"updates has shape {tuple(updates.shape)}; valid: {wanted}")
    for axis in range(depth):
        column = indices[..., axis]
        bad = (column < 0) | (column >= input.shape[axis])
        require(not bool(bad.any()), f"an index is beyond dimension {axis} of the input")
    input[tuple(indices.long().unbind(-1))] = updates
    return input


@reference("npu::npu_scatter_nd_update")
def scatter_nd_update(
    input: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    """Do the same on a copy of the input."""
    return scatter_nd_update_(input.clone(), indices, updates)


@reference("_C_ascend::npu_scatter_nd_update_sk")
def scatter_nd_update_sk(
    var: torch.Tensor,
    indices: torch.Tensor,  # [..., depth], depth <= var.dim()
    update: torch.Tensor,  # [..., sizes of var after depth, dimensions of 1 aside], var's dtype
) -> None:
    """Do the same, but skip negative indices, as the kernel does (`csrc/moe` of vllm-ascend).

    `var` may have gaps along its first dimension alone.
    """
    gapless = var.is_contiguous() or (var.dim() > 0 and var[:1].is_contiguous())
    require(gapless, f"var has strides {var.stride()}; valid: gaps along the first dimension alone")
    kept = (indices >= 0).all(-1)
    # The kernel copies rows of so many numbers, whatever dimensions of 1 they have.
    rows = update.reshape(*indices.shape[:-1], *var.shape[indices.shape[-1] :])
    scatter_nd_update_(var, indices[kept], rows[kept])


@reference("npu::npu_gather_pa_kv_cache")
def gather_pa_kv_cache(
    key_cache: torch.Tensor,  # [blocks, block_size, heads, size]
    value_cache: torch.Tensor,  # likewise, with a size of its own
    block_tables: torch.Tensor,  # [batch, max_blocks], int32
    seq_lens: torch.Tensor,  # [batch], int32, or [batch + 1] with is_seq_lens_cumsum
    key: torch.Tensor,  # [tokens, heads, size], written
    value: torch.Tensor,  # likewise
    *,
    seq_offset: torch.Tensor | None = None,  # [batch], int32
    is_seq_lens_cumsum: bool = False,
) -> None:
    """Lay the cached keys and values of all sequences out one after the other.

    A sequence's first token is that at its `seq_offset`.
    """
    require_dtype("block_tables", block_tables, (torch.int32,))
    require_dtype("seq_lens", seq_lens, (torch.int32,))
    require_same_dtype(key_cache=key_cache, key=key)
    require_same_dtype(value_cache=value_cache, value=value)
    lengths = (seq_lens.diff() if is_seq_lens_cumsum else seq_lens).tolist()
    firsts = [0] * len(lengths) if seq_offset is None else seq_offset.tolist()
    require(len(lengths) == len(firsts) <= len(block_tables), "a length and a start each sequence")
    require(sum(lengths) <= len(key), f"{sum(lengths)} tokens; key has {len(key)} rows")
    block_size, row = key_cache.shape[1], 0
    for table, first, length in zip(block_tables, firsts, lengths, strict=False):
        places = torch.arange(first, first + length, device=table.device)
        blocks = table[places // block_size].long()
        key[row : row + length] = key_cache[blocks, places % block_size]
        value[row : row + length] = value_cache[blocks, places % block_size]
        row += length
