"""Attention against PyTorch's own on float64, one sequence at a time."""

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError
from npu_sim.references.registry import HOST_ONLY
from torch.nn.functional import scaled_dot_product_attention

OPS = load_all()
FIA = "npu::npu_fused_infer_attention_score"
FIA2 = "npu::npu_fused_infer_attention_score_v2"
BLOCK = 16
TRIANGLE = torch.triu(torch.ones(2048, 2048), diagonal=1).to(torch.int8)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Let heads have few elements; the limits have tests of their own."""
    beyond = "head_size,head_alignment,rope,sparse_mode,block_size,paged_heads,nbsd_rows"
    monkeypatch.setenv("NPU_SIM_BEYOND", beyond)


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def expected(query, key, value, scale, seen=None):
    """Attend with [rows, heads, size] tensors; rows that see nothing are 0."""
    q, k, v = (x.double().transpose(0, 1) for x in (query, key, value))
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    if seen is not None and not seen.any(-1).all():
        blind = ~seen.any(-1)
        seen = seen | blind.unsqueeze(-1)
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
        return out.masked_fill(blind.unsqueeze(-1), 0).transpose(0, 1)
    return scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale).transpose(0, 1)


def causal(q_len, kv_len):
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)


def ends(lengths):
    return torch.tensor(lengths).cumsum(0).tolist()


def pages(lengths, heads, size, *, dtype=torch.float32, heads_first=False, width=None):
    """Give keys per sequence, and the same keys in shuffled pages with their table."""
    generator = torch.Generator().manual_seed(7)
    counts = [-(-n // BLOCK) for n in lengths]
    cache = torch.randn(sum(counts) + 2, BLOCK, heads, size, generator=generator).to(dtype)
    order = torch.randperm(sum(counts) + 2, generator=generator).tolist()
    table = torch.full((len(lengths), width or max([1, *counts])), 0, dtype=torch.int32)
    sequences = []
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        blocks, order = order[:count], order[count:]
        table[i, :count] = torch.tensor(blocks, dtype=torch.int32)
        sequences.append(cache[blocks].reshape(-1, heads, size)[:length])
    if heads_first:
        return sequences, cache.transpose(1, 2).contiguous(), table
    return sequences, cache.flatten(2), table


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize(
    ("q_lengths", "kv_lengths"),
    [
        ([1, 1, 1], [5, 16, 33]),  # decoding
        ([4, 4], [4, 41]),  # verification of three drafts
        ([17, 1, 3], [17, 30, 3]),  # prefill, decode and prefill together
        ([2, 2, 2], [20, 0, 1]),  # padded graph slots without keys
        ([3, 0], [9, 4]),
    ],
)
def test_paged_and_causal(q_lengths, kv_lengths, heads_first, dtype):
    heads, kv_heads, size = 6, 2, 8
    keys, key_cache, table = pages(kv_lengths, kv_heads, size, dtype=dtype, heads_first=heads_first)
    values, value_cache = [k * 0.5 + 1 for k in keys], key_cache * 0.5 + 1
    query = rows(sum(q_lengths), heads, size, dtype=dtype)
    out, lse = OPS[FIA](
        query,
        key_cache,
        value_cache,
        atten_mask=TRIANGLE,
        block_table=table,
        actual_seq_lengths=ends(q_lengths),
        actual_seq_lengths_kv=kv_lengths,
        num_heads=heads,
        num_key_value_heads=kv_heads,
        block_size=BLOCK,
        input_layout="TND",
        scale=0.3,
        sparse_mode=3,
    )
    assert out.shape == query.shape
    assert out.dtype == dtype
    assert lse.tolist() == [0]
    for first, q_len, key, value in zip(
        [0, *ends(q_lengths)], q_lengths, keys, values, strict=False
    ):
        part = query[first : first + q_len]
        if not len(key):
            assert not out[first : first + q_len].any()
            continue
        want = expected(part, key, value, 0.3, causal(q_len, len(key)))
        torch.testing.assert_close(
            out[first : first + q_len].double(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("mode", [0, 2, 3])
@pytest.mark.parametrize(("q_lengths", "kv_lengths"), [([3, 5], [3, 5]), ([1, 2, 0], [4, 7, 2])])
def test_tokens_without_pages(q_lengths, kv_lengths, mode):
    heads, kv_heads, size = 4, 4, 6
    query = rows(sum(q_lengths), heads, size)
    key, value = rows(sum(kv_lengths), kv_heads, size), rows(sum(kv_lengths), kv_heads, 5)
    out, _ = OPS[FIA](
        query,
        key,
        value,
        atten_mask=TRIANGLE if mode else None,
        actual_seq_lengths=ends(q_lengths),
        actual_seq_lengths_kv=ends(kv_lengths),
        num_heads=heads,
        input_layout="TND",
        sparse_mode=mode,
    )
    for i, (q_len, kv_len) in enumerate(zip(q_lengths, kv_lengths, strict=True)):
        a, b = sum(q_lengths[:i]), sum(kv_lengths[:i])
        seen = {0: None, 3: causal(q_len, kv_len)}.get(
            mode, torch.ones(q_len, kv_len, dtype=torch.bool).tril()
        )
        want = expected(query[a : a + q_len], key[b : b + kv_len], value[b : b + kv_len], 1, seen)
        torch.testing.assert_close(out[a : a + q_len].double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 0), (3, 2)])
def test_a_band_is_aligned_at_the_lower_right(before, after):
    q_len, kv_len = 3, 8
    query, key, value = rows(q_len, 2, 4), rows(kv_len, 2, 4), rows(kv_len, 2, 4) + 1
    out, _ = OPS[FIA](
        query,
        key,
        value,
        atten_mask=TRIANGLE,
        actual_seq_lengths=[q_len],
        actual_seq_lengths_kv=[kv_len],
        num_heads=2,
        input_layout="TND",
        sparse_mode=4,
        pre_tokens=before,
        next_tokens=after,
    )
    seen = torch.tensor(
        [[-before <= j - (i + 5) <= after for j in range(kv_len)] for i in range(q_len)]
    )
    torch.testing.assert_close(
        out.double(), expected(query, key, value, 1, seen), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD"])
@pytest.mark.parametrize("masked", [False, True])
def test_padded_layouts(layout, masked):
    batch, q_size, kv_size, heads, kv_heads, size = 2, 3, 5, 4, 2, 6
    query, key = rows(batch, q_size, heads, size), rows(batch, kv_size, kv_heads, size)
    value = key * 2 - 1
    lengths, kv_lengths = [3, 2], [5, 4]
    seen = rows(batch, 1, q_size, kv_size) > 0
    seen[..., 0] = True

    def laid_out(x):
        if layout == "BSH":
            return x.flatten(2)
        return x.transpose(1, 2).contiguous() if layout == "BNSD" else x

    out, lse = OPS[FIA](
        laid_out(query),
        laid_out(key),
        laid_out(value),
        atten_mask=~seen if masked else None,
        actual_seq_lengths=lengths,
        actual_seq_lengths_kv=kv_lengths,
        num_heads=heads,
        num_key_value_heads=kv_heads,
        input_layout=layout,
        scale=0.5,
        softmax_lse_flag=True,
    )
    got = out.transpose(1, 2) if layout == "BNSD" else out.reshape(batch, q_size, heads, size)
    assert lse.shape == (batch, heads, q_size, 1)
    for i, (q_len, kv_len) in enumerate(zip(lengths, kv_lengths, strict=True)):
        part = seen[i, 0, :q_len, :kv_len] if masked else None
        want = expected(query[i, :q_len], key[i, :kv_len], value[i, :kv_len], 0.5, part)
        torch.testing.assert_close(got[i, :q_len].double(), want, atol=1e-5, rtol=1e-5)
        assert not got[i, q_len:].any()
        assert torch.isinf(lse[i, :, q_len:]).all()


def test_log_sums_merge_two_halves_of_the_keys():
    query, key, value = rows(3, 2, 4), rows(9, 2, 4), rows(9, 2, 4) + 1
    keywords = {
        "num_heads": 2,
        "input_layout": "TND",
        "softmax_lse_flag": True,
        "actual_seq_lengths": [3],
    }

    def run(k, v):
        return OPS[FIA](query, k, v, actual_seq_lengths_kv=[len(k)], **keywords)

    (a, log_a), (b, log_b) = run(key[:4], value[:4]), run(key[4:], value[4:])
    assert log_a.shape == (3, 2, 1)
    weight = torch.sigmoid(log_a - log_b)
    torch.testing.assert_close(weight * a + (1 - weight) * b, run(key, value)[0])


def test_no_tokens_at_all():
    out, lse = OPS[FIA](
        torch.zeros(0, 2, 4),
        torch.zeros(0, 2, 4),
        torch.zeros(0, 2, 4),
        actual_seq_lengths=[],
        actual_seq_lengths_kv=[],
        num_heads=2,
        input_layout="TND",
        softmax_lse_flag=True,
    )
    assert out.shape == (0, 2, 4)
    assert lse.shape == (0, 2, 1)


def decode(**changed):
    """Call FIA on two decoding sequences over pages."""
    _, cache, table = pages([5, 20], 2, 8)
    arguments = {
        "query": rows(2, 4, 8),
        "key": cache,
        "value": cache,
        "atten_mask": TRIANGLE,
        "block_table": table,
        "actual_seq_lengths": [1, 2],
        "actual_seq_lengths_kv": [5, 20],
        "num_heads": 4,
        "num_key_value_heads": 2,
        "block_size": BLOCK,
        "input_layout": "TND",
        "sparse_mode": 3,
    }
    name = changed.pop("op", FIA)
    return OPS[name](**{**arguments, **changed})


LAYOUT_PAIRS = {
    "TND_NTD": ("TND", (1, 0, 2)),
    "BNSD_BSND": ("BNSD", (0, 2, 1, 3)),
    "BNSD_NBSD": ("BNSD", (1, 0, 2, 3)),
    "BSND_NBSD": ("BSND", (2, 0, 1, 3)),
}


@pytest.mark.parametrize("layouts", list(LAYOUT_PAIRS))
def test_a_result_that_is_laid_out_otherwise(layouts):
    layout, order = LAYOUT_PAIRS[layouts]
    shapes = {"TND": (6, 4, 8), "BNSD": (3, 4, 2, 8), "BSND": (3, 2, 4, 8)}
    query, key, value = (rows(*shapes[layout]) + i for i in range(3))
    keywords = {"num_heads": 4, "scale": 0.5}
    if layout == "TND":
        keywords |= {"actual_seq_lengths": [2, 6], "actual_seq_lengths_kv": [2, 6]}
    straight, _ = OPS[FIA](query, key, value, input_layout=layout, **keywords)
    turned, _ = OPS[FIA](query, key, value, input_layout=layouts, **keywords)
    assert torch.equal(turned, straight.permute(order))
    assert turned.is_contiguous()


def test_mla_prefill_adds_the_rope_parts_scores():
    query, key, value = rows(5, 3, 8), rows(5, 3, 8) + 1, rows(5, 3, 6)
    query_rope, key_rope = rows(5, 3, 4), rows(5, 3, 4) - 1
    out, _ = OPS[FIA](
        query,
        key,
        value,
        query_rope=query_rope,
        key_rope=key_rope,
        atten_mask=TRIANGLE,
        actual_seq_lengths=[2, 5],
        actual_seq_lengths_kv=[2, 5],
        num_heads=3,
        input_layout="TND",
        scale=0.3,
        sparse_mode=3,
    )
    assert out.shape == (5, 3, 6)
    for a, b in ((0, 2), (2, 5)):
        want = expected(
            torch.cat((query, query_rope), -1)[a:b],
            torch.cat((key, key_rope), -1)[a:b],
            value[a:b],
            0.3,
            causal(b - a, b - a),
        )
        torch.testing.assert_close(out[a:b].double(), want, atol=1e-5, rtol=1e-5)


def absorbed(q_lengths, kv_lengths, **changed):
    """Verify drafts with absorbed MLA: one latent head that is key and value at once."""
    keys, cache, table = pages(kv_lengths, 1, 576, heads_first=True)
    latents, ropes = zip(*[key.split([512, 64], -1) for key in keys], strict=True)
    latent_cache, rope_cache = (part.contiguous() for part in cache.split([512, 64], -1))
    tokens = sum(q_lengths)
    arguments = {
        "query": rows(tokens, 2, 512),
        "key": latent_cache,
        "value": latent_cache,
        "query_rope": rows(tokens, 2, 64),
        "key_rope": rope_cache,
        "atten_mask": TRIANGLE,
        "block_table": table,
        "actual_seq_qlen": ends(q_lengths),
        "actual_seq_kvlen": kv_lengths,
        "num_query_heads": 2,
        "num_key_value_heads": 1,
        "softmax_scale": 0.05,
        "block_size": BLOCK,
        "input_layout": "TND_NTD",
        "sparse_mode": 3,
        **changed,
    }
    return arguments, latents, ropes


def test_absorbed_mla_over_pages():
    arguments, latents, ropes = absorbed([3, 1], [20, 7])
    want, first = [], 0
    for q_len, latent, rope in zip([3, 1], latents, ropes, strict=True):
        query = torch.cat((arguments["query"], arguments["query_rope"]), -1)[first : first + q_len]
        key = torch.cat((latent, rope), -1)
        want.append(expected(query, key, latent, 0.05, causal(q_len, len(key))))
        first += q_len
    out, _ = OPS[FIA2](**arguments)
    assert out.shape == (2, 4, 512)
    torch.testing.assert_close(out.transpose(0, 1).double(), torch.cat(want), atol=1e-4, rtol=1e-4)
    given = torch.zeros(2, 4, 512)
    got = OPS[f"{FIA2}.out"](**arguments, out=[given, torch.zeros(1)], workspace=torch.zeros(1))
    assert got[0] is given
    assert torch.equal(given, out)
    name = "npu::_npu_fused_infer_attention_score_v2_get_max_workspace"
    assert name in HOST_ONLY
    assert OPS[name](**arguments).dim() == 1


def test_absorbed_mla_takes_up_to_sixteen_rows():
    OPS[FIA2](**absorbed([16], [20])[0])
    with pytest.raises(OpError, match="sequence 0 has 17 rows; absorbed MLA takes up to 16"):
        OPS[FIA2](**absorbed([17], [20])[0])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"query_rope": rows(3, 2, 32)}, "query_rope has shape"),
        (
            {
                "block_table": None,
                "key": rows(20, 1, 512),
                "value": rows(20, 1, 512),
                "key_rope": rows(20, 1, 64),
            },
            "absorbed MLA needs a paged cache",
        ),
        ({"key_rope": None}, "must be given together"),
        ({"query_quant_mode": 3}, "no reference for query_quant_mode=3"),
        ({"learnable_sink": torch.zeros(3)}, "learnable_sink has shape"),
    ],
)
def test_second_interface_refuses(changed, reason):
    with pytest.raises(OpError, match=rf"^{FIA2}: .*{reason}"):
        OPS[FIA2](**absorbed([3], [20], **changed)[0])


def test_a_sink_takes_part_in_the_sum_alone():
    query, key, value, sink = rows(4, 2, 6), rows(4, 1, 6), rows(4, 1, 6) + 2, rows(2)
    out, lse = OPS[FIA2](
        query,
        key,
        value,
        actual_seq_qlen=[4],
        actual_seq_kvlen=[4],
        num_query_heads=2,
        num_key_value_heads=1,
        input_layout="TND",
        learnable_sink=sink,
        return_softmax_lse=True,
    )
    for token in range(4):
        for head in range(2):
            scores = [float(query[token, head].double() @ k[0].double()) for k in key]
            total = sum(torch.tensor([*scores, float(sink[head])]).double().exp())
            want = sum(
                torch.tensor(s).double().exp() / total * v[0].double()
                for s, v in zip(scores, value, strict=True)
            )
            torch.testing.assert_close(out[token, head].double(), want, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(
                lse[token, head, 0].double(), total.log(), atol=1e-4, rtol=1e-4
            )


def test_out_variant_writes_into_the_callers_tensors():
    want, _ = decode()
    whole = torch.full((5, 4 * 8), 9.0)
    lse = torch.zeros(1)
    got = decode(op=f"{FIA}.out", out=[whole[:2], lse], workspace=torch.zeros(1))
    assert got[0].data_ptr() == whole.data_ptr()
    assert got[1] is lse
    assert torch.equal(whole[:2].view(2, 4, 8), want)
    assert (whole[2:] == 9).all()


def test_the_workspace_needs_no_device_op():
    name = "npu::_npu_fused_infer_attention_score_get_max_workspace"
    assert name in HOST_ONLY
    assert decode(op=name).dim() == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"actual_seq_lengths": [1, 3]}, "actual_seq_lengths ends at 3, the tensor has 2"),
        ({"actual_seq_lengths": [2, 1]}, "is not a running total"),
        ({"actual_seq_lengths": None}, "block_table has 2 rows for 0"),
        ({"actual_seq_lengths_kv": [5]}, "has 1 elements for 2"),
        ({"actual_seq_lengths_kv": [5, 33]}, r"outside \[0, 32"),
        ({"actual_seq_lengths_kv": None}, "needs actual_seq_lengths_kv"),
        ({"atten_mask": None}, "sparse_mode 3 needs atten_mask"),
        ({"atten_mask": TRIANGLE[:128, :128]}, "atten_mask has shape"),
        ({"atten_mask": TRIANGLE.float()}, "atten_mask is torch.float32"),
        ({"atten_mask": TRIANGLE.t().contiguous()}, "1 above the diagonal"),
        ({"block_table": torch.zeros(3, 2, dtype=torch.int32)}, "block_table has 3 rows"),
        ({"block_table": torch.zeros(2, 2, dtype=torch.int64)}, "block_table is torch.int64"),
        ({"block_table": torch.full((2, 2), 99, dtype=torch.int32)}, "names blocks 99 to 99"),
        ({"block_size": 32}, "blocks of 16, block_size is 32"),
        ({"num_heads": 2}, "query has 4 heads, num_heads is 2"),
        ({"num_key_value_heads": 3}, "num_heads 4 and num_key_value_heads 3"),
        ({"input_layout": "NTD"}, "input_layout is 'NTD'"),
        ({"sparse_mode": 9}, "sparse_mode is 9"),
        ({"inner_precise": 4}, "inner_precise is 4"),
        ({"query": torch.zeros(2, 4, 8, dtype=torch.bfloat16)}, "dtypes differ"),
        ({"pse_shift": torch.zeros(1)}, "no reference for pse_shift"),
        ({"query_rope": torch.zeros(2, 4, 3)}, "must be given together"),
        ({"key_antiquant_mode": 1}, "no reference for key_antiquant_mode=1"),
    ],
)
def test_refused(changed, reason):
    with pytest.raises(OpError, match=rf"^{FIA}: .*{reason}"):
        decode(**changed)


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ([torch.zeros(3, 4, 8), torch.zeros(1)], "attention_out has shape"),
        ([torch.zeros(2, 4, 8, dtype=torch.bfloat16), torch.zeros(1)], "torch.bfloat16"),
        ([torch.zeros(2, 4, 8)], "out holds 1 tensors"),
    ],
)
def test_out_variant_refuses(out, reason):
    with pytest.raises(OpError, match=rf"^{FIA}.out: .*{reason}"):
        decode(op=f"{FIA}.out", out=out)


def paged(lengths, *, dtype=torch.float32, **changed):
    keys, cache, table = pages(lengths, 2, 8, dtype=dtype, width=3)
    cache = cache.unflatten(-1, (2, 8))
    arguments = {
        "query": rows(len(lengths) + 1, 4, 8, dtype=dtype),
        "key_cache": cache,
        "value_cache": cache * 0.5,
        "num_kv_heads": 2,
        "num_heads": 4,
        "scale_value": 0.4,
        "block_table": table,
        "context_lens": torch.tensor(lengths, dtype=torch.int32),
        "out": torch.full((len(lengths) + 1, 32), 9.0).to(dtype),
        **changed,
    }
    OPS["atb::_npu_paged_attention"](**arguments)
    return keys, arguments


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[1], [16, 17, 0, 40], []])
def test_paged_attention_of_atb(lengths, dtype):
    keys, arguments = paged(lengths, dtype=dtype)
    out = arguments["out"].view(-1, 4, 8)
    for i, key in enumerate(keys):
        if not len(key):
            assert not out[i].any()
            continue
        want = expected(arguments["query"][i : i + 1], key, key * 0.5, 0.4)
        torch.testing.assert_close(
            out[i : i + 1].double(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
        )
    assert (out[len(lengths) :] == 9).all()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"context_lens": torch.tensor([49], dtype=torch.int32)}, "block_table holds 48"),
        ({"context_lens": torch.tensor([4])}, "context_lens is torch.int64"),
        ({"context_lens": torch.ones(3, dtype=torch.int32)}, "3 context_lens, 2 queries"),
        ({"num_heads": 3}, "query must be"),
        ({"num_kv_heads": 4}, "key_cache has shape"),
        ({"block_table": torch.full((1, 3), 9, dtype=torch.int32)}, "names a block beyond 3"),
        ({"out": torch.zeros(2, 32, dtype=torch.float16)}, "dtypes differ"),
    ],
)
def test_paged_attention_refuses(changed, reason):
    with pytest.raises(OpError, match=rf"^atb::_npu_paged_attention: .*{reason}"):
        paged([4], **changed)
