"""Writing the paged cache against a loop over tokens."""

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError

OPS = load_all()
BLOCKS, SIZE = 4, 3


def tokens(count, heads=2, key_size=5, value_size=7, dtype=torch.float32):
    generator = torch.Generator().manual_seed(count)
    key = torch.randn(count, heads, key_size, generator=generator).to(dtype)
    value = torch.randn(count, heads, value_size, generator=generator).to(dtype)
    return key, value


def caches(heads=2, key_size=5, value_size=7, dtype=torch.float32):
    return tuple(
        torch.full((BLOCKS, SIZE, heads, n), 9.0).to(dtype) for n in (key_size, value_size)
    )


def looped(rows, cache, slots):
    want = cache.clone()
    for row, slot in zip(rows, slots.tolist(), strict=True):
        if slot >= 0:
            want[slot // SIZE, slot % SIZE] = row
    return want


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ints", [torch.int32, torch.int64])
@pytest.mark.parametrize("slots", [[], [0], [11, 4, 3], [-1, 5, -1, 0], [-1, -1]])
@pytest.mark.parametrize("mode", ["Norm", None])
def test_rows(slots, ints, dtype, mode):
    slots = torch.tensor(slots, dtype=ints)
    (key, value), (key_cache, value_cache) = tokens(len(slots), dtype=dtype), caches(dtype=dtype)
    want = looped(key, key_cache, slots), looped(value, value_cache, slots)
    OPS["npu::npu_scatter_pa_kv_cache"](key, value, key_cache, value_cache, slots, cache_mode=mode)
    assert torch.equal(key_cache, want[0])
    assert torch.equal(value_cache, want[1])


def test_a_cache_whose_blocks_interleave_keys_and_values():
    both = torch.zeros(BLOCKS, 2, SIZE, 2, 5)
    key_cache, value_cache = both[:, 0], both[:, 1]
    key, _ = tokens(3)
    slots = torch.tensor([7, -1, 2])
    want = looped(key, key_cache, slots)
    OPS["npu::npu_scatter_pa_kv_cache"](
        key, key * 2, key_cache, value_cache, slots, cache_mode="Norm"
    )
    assert torch.equal(both[:, 0], want)
    assert torch.equal(both[:, 1], want * 2)


@pytest.mark.parametrize("last", [2, 4, 8])
def test_tiles(last):
    key, value = tokens(3, heads=2, key_size=4, value_size=4)
    key_cache, value_cache = (torch.zeros(BLOCKS, 8 // last, SIZE, last) for _ in range(2))
    slots = torch.tensor([10, -1, 4], dtype=torch.int32)
    OPS["npu::npu_scatter_pa_kv_cache"](key, value, key_cache, value_cache, slots)
    rows = torch.zeros(BLOCKS, SIZE, 8)
    want = looped(value.reshape(3, 8), rows, slots)
    for block in range(BLOCKS):
        for offset in range(SIZE):
            for column in range(8):
                got = value_cache[block, column // last, offset, column % last]
                assert got == want[block, offset, column]


@pytest.mark.parametrize("scatter_mode", ["None", "NHSD"])
def test_heads_before_tokens(scatter_mode):
    key, value = tokens(3)
    key_cache, value_cache = caches()
    slots = torch.tensor([5, 0, -1], dtype=torch.int32)
    want = looped(key, key_cache, slots), looped(value, value_cache, slots)
    if scatter_mode == "NHSD":
        key_cache = key_cache.transpose(1, 2).contiguous()
        value_cache = value_cache.transpose(1, 2).contiguous()
    OPS["_C_ascend::npu_scatter_pa_kv_cache"](
        key, value, key_cache, value_cache, slots, cache_mode="Norm", scatter_mode=scatter_mode
    )
    if scatter_mode == "NHSD":
        key_cache, value_cache = key_cache.transpose(1, 2), value_cache.transpose(1, 2)
    assert torch.equal(key_cache, want[0])
    assert torch.equal(value_cache, want[1])


def test_atb_writes_pairs_and_single_tensors():
    key, value = tokens(3)
    key_cache, value_cache = caches()
    slots = torch.tensor([5, 0, -1], dtype=torch.int32)
    want = looped(key, key_cache, slots)
    alone = key_cache.clone()
    OPS["atb::_npu_reshape_and_cache"](key, value, key_cache, value_cache, slots)
    OPS["atb::_npu_reshape_and_cache_siso"](key, alone, slots)
    assert torch.equal(key_cache, want)
    assert torch.equal(alone, want)


def test_atb_takes_a_part_of_a_wider_tensor():
    """As vllm-ascend 0.23 hands it over; the cache's own op refuses it, see below."""
    key, value = tokens(2)
    key_cache, value_cache = caches()
    want_key, want_value = key_cache.clone(), value_cache.clone()
    slots = torch.tensor([1, 9, 2, 9], dtype=torch.int32)
    OPS["atb::_npu_reshape_and_cache"](key, value, want_key, want_value, slots[::2].contiguous())
    wide = torch.cat([key, value], dim=-1).split([key.shape[-1], value.shape[-1]], dim=-1)
    assert not any(part.is_contiguous() for part in wide)
    OPS["atb::_npu_reshape_and_cache"](*wide, key_cache, value_cache, slots[::2])
    assert torch.equal(key_cache, want_key)
    assert torch.equal(value_cache, want_value)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd_update(depth):
    x = torch.randn(4, 5, 3)
    indices = torch.tensor([[[3, 1, 2], [0, 4, 0]], [[2, 2, 1], [1, 0, 2]]])[..., :depth]
    updates = torch.randn(2, 2, *x.shape[depth:])
    want = x.clone()
    for i in range(2):
        for j in range(2):
            want[tuple(indices[i, j].tolist())] = updates[i, j]
    out = OPS["npu::npu_scatter_nd_update"](x, indices, updates)
    assert torch.equal(out, want)
    assert not torch.equal(x, want)
    assert OPS["npu::npu_scatter_nd_update_"](x, indices, updates) is x
    assert torch.equal(x, want)


def test_scatter_nd_update_sk_skips_negative_indices():
    rows = torch.zeros(6, 7)[:, :5]  # gaps between its rows, as in a cache of several parts
    update = torch.arange(15.0).view(3, 5)
    indices = torch.tensor([[4], [-1], [0]], dtype=torch.int32)
    assert OPS["_C_ascend::npu_scatter_nd_update_sk"](rows, indices, update) is None
    assert torch.equal(rows[[4, 0]], update[[0, 2]])
    assert not rows[[1, 2, 3, 5]].any()
    with pytest.raises(OpError, match="_sk: an index is beyond dimension 0"):
        OPS["_C_ascend::npu_scatter_nd_update_sk"](rows, indices + 2, update)
    with pytest.raises(OpError, match="_sk: var has strides"):
        OPS["_C_ascend::npu_scatter_nd_update_sk"](torch.zeros(5, 6).T, indices, update)


def scatter(**changed):
    key, value = tokens(2)
    key_cache, value_cache = caches()
    arguments = {
        "key": key,
        "value": value,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "slot_mapping": torch.tensor([1, 2], dtype=torch.int32),
        "cache_mode": "Norm",
    }
    return OPS["npu::npu_scatter_pa_kv_cache"](**{**arguments, **changed})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"slot_mapping": torch.tensor([1, 12], dtype=torch.int32)}, "slot 12 is beyond 4 blocks"),
        ({"slot_mapping": torch.tensor([1.0, 2.0])}, "slot_mapping is torch.float32"),
        ({"slot_mapping": torch.tensor([1], dtype=torch.int32)}, "for 2 tokens"),
        ({"cache_mode": "PA"}, "cache_mode is 'PA'"),
        ({"seq_lens": torch.ones(2)}, "no reference for seq_lens"),
        ({"key": torch.ones(2, 2, 5, dtype=torch.bfloat16)}, "dtypes differ"),
        ({"key": torch.ones(2, 5, 2).transpose(1, 2)}, "contiguous"),
        ({"key": torch.ones(2, 2, 4)}, "the cache holds rows"),
        ({"key": torch.ones(2, 3, 5)}, "differ in tokens or heads"),
    ],
)
def test_refused(changed, reason):
    with pytest.raises(OpError, match=rf"^npu::npu_scatter_pa_kv_cache: .*{reason}"):
        scatter(**changed)


@pytest.mark.parametrize(
    ("indices", "updates", "reason"),
    [
        (torch.tensor([[4]]), torch.ones(1, 5), "beyond dimension 0"),
        (torch.tensor([[-1]]), torch.ones(1, 5), "beyond dimension 0"),
        (torch.tensor([1]), torch.ones(5), "valid: 2 or more"),
        (torch.tensor([[1]]), torch.ones(1, 4), "updates has shape"),
        (torch.tensor([[1, 1, 1]]), torch.ones(1), "name 3 of 2 dimensions"),
    ],
)
def test_scatter_nd_update_refuses(indices, updates, reason):
    with pytest.raises(OpError, match=reason):
        OPS["npu::npu_scatter_nd_update_"](torch.zeros(4, 5), indices, updates)


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("starts", [None, [0, 2, 4]])
def test_sequences_laid_out_one_after_the_other(starts, cumulative):
    (key_cache, value_cache), lengths = caches(), [4, 0, 2]
    for cache in (key_cache, value_cache):
        cache.copy_(torch.arange(cache.numel()).view(cache.shape))
    tables = torch.tensor([[2, 0], [1, 1], [3, 1]], dtype=torch.int32)
    (key, value), firsts = tokens(6), starts or [0, 0, 0]
    OPS["npu::npu_gather_pa_kv_cache"](
        key_cache,
        value_cache,
        tables,
        torch.tensor([0, 4, 4, 6] if cumulative else lengths, dtype=torch.int32),
        key,
        value,
        seq_offset=None if starts is None else torch.tensor(starts, dtype=torch.int32),
        is_seq_lens_cumsum=cumulative,
    )
    places = [(n, firsts[n] + i) for n, length in enumerate(lengths) for i in range(length)]
    for row, (n, place) in enumerate(places):
        block = tables[n, place // SIZE]
        assert torch.equal(key[row], key_cache[block, place % SIZE])
        assert torch.equal(value[row], value_cache[block, place % SIZE])


def test_more_cached_tokens_than_room():
    (key_cache, value_cache), (key, value) = caches(), tokens(2)
    tables = torch.zeros(1, 2, dtype=torch.int32)
    with pytest.raises(OpError, match="3 tokens; key has 2 rows"):
        OPS["npu::npu_gather_pa_kv_cache"](
            key_cache, value_cache, tables, torch.tensor([3], dtype=torch.int32), key, value
        )
