"""The indexer and sparse MLA, against loops over single tokens and against dense attention."""

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError

OPS = load_all()
INDEXER, ATTENTION = "npu::npu_lightning_indexer", "_C_ascend::npu_sparse_flash_attention"
BLOCK = 16
# Rows and keys of each sequence: a whole prompt, one that has no rows, one that goes on, and one
# with more rows than keys, as a padded one has.
ROWS, KEYS = (5, 0, 4, 2), (5, 3, 37, 1)
TABLE = [[3, 9, 9], [0, 9, 9], [7, 1, 4], [2, 9, 9]]
PADDING = 2  # rows beyond all sequences
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


def numbers(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def ends():
    return ints(ROWS).cumsum(0).to(torch.int32)


def places():
    """Give each row's number with its sequence and how many keys it sees."""
    row = 0
    for sequence, (rows, keys) in enumerate(zip(ROWS, KEYS, strict=True)):
        for i in range(rows):
            yield row, sequence, keys - rows + i + 1
            row += 1


def cached(cache, sequence, place):
    return cache[TABLE[sequence][place // BLOCK], place % BLOCK, 0]


def indexer(*, dtype=torch.float32, heads=3, **changed):
    total = sum(ROWS) + PADDING
    arguments = {
        "query": numbers(total, heads, 128, dtype=dtype),
        "key": numbers(10, BLOCK, 1, 128, dtype=dtype),
        "weights": numbers(total, heads, dtype=dtype),
        "actual_seq_lengths_query": ends(),
        "actual_seq_lengths_key": ints(KEYS),
        "block_table": ints(TABLE),
        "layout_query": "TND",
        "layout_key": "PA_BSND",
        **changed,
    }
    return arguments, OPS[INDEXER](**arguments)[0]


def score(arguments, row, sequence, place):
    """Give one token's score for one key, head by head."""
    key, total = cached(arguments["key"], sequence, place).double(), 0.0
    for head, weight in enumerate(arguments["weights"][row].double()):
        total += float(weight * torch.dot(arguments["query"][row, head].double(), key).clamp(min=0))
    return total


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("count", [4, 2048])
def test_the_indexer_selects_the_best_keys_that_a_token_sees(count, dtype):
    arguments, selected = indexer(dtype=dtype, sparse_count=count)
    assert selected.dtype == torch.int32
    assert selected.shape == (sum(ROWS) + PADDING, 1, count)
    was_selective = False
    for row, sequence, seen in places():
        scores = {place: score(arguments, row, sequence, place) for place in range(seen)}
        best = sorted(scores, key=lambda place: -scores[place])[:count]
        found = [place for place in selected[row, 0].tolist() if place >= 0]
        assert found == selected[row, 0, : len(found)].tolist()
        assert found == best
        was_selective |= len(best) < seen
    assert was_selective == (count == 4)
    assert (selected[-PADDING:] == -1).all()


def test_without_a_causal_mask_the_indexer_sees_all_keys():
    _, selected = indexer(sparse_mode=0)
    for row, sequence, _ in places():
        assert sorted(selected[row, 0].tolist())[-KEYS[sequence] :] == list(range(KEYS[sequence]))


def test_of_equal_scores_the_earlier_key_comes_first():
    _, selected = indexer(weights=torch.zeros(sum(ROWS) + PADDING, 3), sparse_count=3)
    assert selected[ROWS[0], 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"layout_query": "BSND"}, "layout_query is 'BSND'"),
        ({"layout_key": "TND"}, "layout_key is 'TND'"),
        ({"sparse_mode": 4}, "sparse_mode is 4"),
        ({"sparse_count": 2049}, "sparse_count is 2049"),
        ({"sparse_count": 0}, "sparse_count is 0"),
        ({"pre_tokens": 5}, "pre_tokens is 5"),
        ({"return_value": True}, "no reference for return_value"),
        ({"heads": 65}, "65 heads"),
        ({"query": torch.zeros(13, 3, 64)}, "query has shape"),
        ({"key": torch.zeros(10, BLOCK, 2, 128)}, "key has shape"),
        ({"key": torch.zeros(10, 24, 1, 128)}, "block_size is 24"),
        ({"key": torch.zeros(10, BLOCK, 1, 128, dtype=torch.bfloat16)}, "dtypes differ"),
        ({"weights": torch.zeros(13, 3, dtype=torch.bfloat16)}, "dtypes differ"),
        ({"block_table": None}, "and a block table"),
        ({"block_table": ints(TABLE[:3])}, "block_table has shape"),
        ({"block_table": ints(TABLE).long()}, "block_table is torch.int64"),
        ({"block_table": ints([[99] * 3] * 4)}, "names a block beyond 10"),
        ({"actual_seq_lengths_key": ints([5, 3, 49, 1])}, "sequence 2 has 49 keys"),
        ({"actual_seq_lengths_query": ints([5, 4, 9, 11])}, "rows of sequence 1 end at 4"),
        ({"actual_seq_lengths_query": ints([5, 5, 9, 14])}, "rows of sequence 3 end at 14"),
        ({"actual_seq_lengths_query": ends().long()}, "lengths of query is torch.int64"),
    ],
)
def test_the_indexer_refuses(changed, reason):
    with pytest.raises(OpError, match=rf"^{INDEXER}: .*{reason}"):
        indexer(**changed)


def selections(count):
    """Give a random selection of the keys that each row sees: all of them where they are few."""
    generator = torch.Generator().manual_seed(count)
    chosen = torch.full((sum(ROWS) + PADDING, 1, count), -1, dtype=torch.int32)
    for row, _, seen in places():
        order = torch.randperm(max(seen, 0), generator=generator)[:count]
        chosen[row, 0, : len(order)] = order.to(torch.int32)
    return chosen


def attention(*, dtype=torch.float32, heads=2, count=64, **changed):
    total = sum(ROWS) + PADDING
    key = numbers(10, BLOCK, 1, 512, dtype=dtype)
    arguments = {
        "query": numbers(total, heads, 512, dtype=dtype),
        "key": key,
        "value": key,
        "sparse_indices": selections(count),
        "scale_value": 0.05,
        "block_table": ints(TABLE),
        "actual_seq_lengths_query": ends(),
        "actual_seq_lengths_kv": ints(KEYS),
        "query_rope": numbers(total, heads, 64, dtype=dtype),
        "key_rope": numbers(10, BLOCK, 1, 64, dtype=dtype),
        "layout_query": "TND",
        "layout_kv": "PA_BSND",
        **changed,
    }
    return arguments, OPS[ATTENTION](**arguments)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("count", [4, 64])
def test_attention_to_the_selected_keys(count, dtype):
    arguments, (out, *sums) = attention(dtype=dtype, count=count)
    assert [s.numel() for s in sums] == [0, 0]
    wanted = torch.zeros(out.shape, dtype=torch.float64)
    for row, sequence, seen in places():
        chosen = [place for place in arguments["sparse_indices"][row, 0].tolist() if place >= 0]
        if seen <= 0:
            continue
        for head in range(2):
            scores = []
            for place in chosen:
                dot = torch.dot(
                    arguments["query"][row, head].double(),
                    cached(arguments["key"], sequence, place).double(),
                )
                turned = torch.dot(
                    arguments["query_rope"][row, head].double(),
                    cached(arguments["key_rope"], sequence, place).double(),
                )
                scores.append((dot + turned) * 0.05)
            for place, share in zip(chosen, torch.stack(scores).softmax(0), strict=True):
                wanted[row, head] += share * cached(arguments["value"], sequence, place).double()
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(out.double(), wanted, **close)


def test_with_every_key_selected_it_is_dense_attention():
    arguments, (out, *_) = attention()
    row = 0
    for sequence, (rows, keys) in enumerate(zip(ROWS, KEYS, strict=True)):
        if keys < rows or not rows:
            row += rows
            continue
        both = torch.cat((arguments["query"], arguments["query_rope"]), -1)[row : row + rows]
        paged = torch.cat((arguments["key"], arguments["key_rope"]), -1)
        all_keys = paged[TABLE[sequence]].flatten(0, 1)[:keys].transpose(0, 1)
        mask = torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)
        dense = torch.nn.functional.scaled_dot_product_attention(
            both.transpose(0, 1), all_keys, all_keys[..., :512], attn_mask=mask, scale=0.05
        )
        torch.testing.assert_close(
            out[row : row + rows], dense.transpose(0, 1), atol=1e-5, rtol=1e-5
        )
        row += rows


def test_without_a_rope_part():
    _, (with_zeros, *_) = attention(query_rope=torch.zeros(13, 2, 64))
    _, (without, *_) = attention(query_rope=None, key_rope=None)
    torch.testing.assert_close(without, with_zeros)


def test_keys_that_a_token_does_not_see_are_left_out():
    chosen = selections(4)
    _, (out, *_) = attention(sparse_indices=chosen)
    # The first row sees one key.
    chosen[0, 0] = ints([0, 4, 3, 2])
    _, (same, *_) = attention(sparse_indices=chosen)
    assert torch.equal(out, same)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"layout_query": "BSND"}, "layout_query is 'BSND'"),
        ({"layout_kv": "TND"}, "layout_kv is 'TND'"),
        ({"attention_mode": 0}, "attention_mode is 0"),
        ({"sparse_mode": 1}, "sparse_mode is 1"),
        ({"sparse_block_size": 2}, "sparse_block_size is 2"),
        ({"return_softmax_lse": True}, "return_softmax_lse is True"),
        ({"heads": 65}, "65 heads"),
        ({"query_rope": None}, "must be given together"),
        ({"query": torch.zeros(13, 2, 256)}, "query has shape"),
        ({"value": torch.zeros(9, BLOCK, 1, 512)}, "value has shape"),
        ({"query_rope": torch.zeros(13, 2, 32)}, "query_rope has shape"),
        ({"key_rope": torch.zeros(10, BLOCK, 1, 64, dtype=torch.half)}, "dtypes differ"),
        ({"sparse_indices": selections(4).long()}, "sparse_indices is torch.int64"),
        ({"sparse_indices": ints([[[-1, 0]]] * 13)}, "a place behind a -1"),
        ({"sparse_indices": ints([[[5]]] * 13)}, "goes beyond 5 keys"),
        ({"sparse_indices": ints([[[0, 0]]] * 13)}, "names a key twice"),
        ({"actual_seq_lengths_kv": None}, "needs both sequence lengths"),
        ({"actual_seq_lengths_kv": ints([5, 3, 37])}, "lengths of key has shape"),
    ],
)
def test_attention_refuses(changed, reason):
    with pytest.raises(OpError, match=rf"^{ATTENTION}: .*{reason}"):
        attention(**changed)
