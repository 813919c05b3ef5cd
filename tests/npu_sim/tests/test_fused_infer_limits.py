"""Calls of fused attention that Ascend's documents do not allow, each limit on its own."""

from __future__ import annotations

import pytest
import torch
from npu_sim.references import fused_infer_limits, load_all
from npu_sim.references.checks import OpError

FIA = load_all()["npu::npu_fused_infer_attention_score"]
TRIANGLE = torch.triu(torch.ones(2048, 2048), diagonal=1).to(torch.int8)
HEADS, BLOCK, BLOCKS = 2, 128, 2


def tokens(size=128, *, block=BLOCK, heads=HEADS, value_size=None, **changed):
    """Give a call for two sequences by token, over a paged cache."""
    cache = torch.zeros(BLOCKS, block, heads * size)
    return {
        "query": torch.zeros(3, heads, size), "key": cache,
        "value": torch.zeros(BLOCKS, block, heads * (value_size or size)),
        "block_table": torch.zeros(2, 1, dtype=torch.int32), "block_size": block,
        "actual_seq_lengths": [1, 3], "actual_seq_lengths_kv": [5, 9], "num_heads": heads,
        "input_layout": "TND", "sparse_mode": 3, "atten_mask": TRIANGLE, **changed,
    }  # fmt: skip


def unpaged(size, value_size, **changed):
    """Give the same with keys by token."""
    key, value = torch.zeros(14, HEADS, size), torch.zeros(14, HEADS, value_size)
    return tokens(
        size, key=key, value=value, block_table=None, actual_seq_lengths_kv=[5, 14], **changed
    )


def padded(rows=1, *, size=64, layout="BNSD", block=BLOCK, **changed):
    """Give a call for two sequences in a padded layout, over a paged cache."""
    shape = {"BNSD": (2, HEADS, rows, size), "BSND": (2, rows, HEADS, size)}[layout[:4]]
    cache = torch.zeros(BLOCKS, block, HEADS * size)
    return {
        "query": torch.zeros(shape), "key": cache, "value": cache, "block_size": block,
        "block_table": torch.zeros(2, 1, dtype=torch.int32), "actual_seq_lengths_kv": [5, 9],
        "num_heads": HEADS, "input_layout": layout, **changed,
    }  # fmt: skip


def latent(heads=4, *, kv_heads=1, rope=64, block=BLOCK, layout="TND", **changed):
    """Give a call of absorbed MLA; see `tokens` and `padded`."""
    query = torch.zeros(3, heads, 512) if layout[:3] == "TND" else torch.zeros(2, heads, 2, 512)
    cache = torch.zeros(BLOCKS, kv_heads, block, 512)
    by_token = {"actual_seq_lengths": [1, 3]} if layout[:3] == "TND" else {}
    return {
        "query": query, "key": cache, "value": cache, "query_rope": query[..., :rope].contiguous(),
        "key_rope": cache[..., :rope].contiguous(), "block_size": block, "num_heads": heads,
        "num_key_value_heads": kv_heads, "block_table": torch.zeros(2, 1, dtype=torch.int32),
        "actual_seq_lengths_kv": [5, 9], "input_layout": layout, **by_token, **changed,
    }  # fmt: skip


def many(count):
    """Give a call for many sequences of one token."""
    return tokens(
        query=torch.zeros(count, HEADS, 128),
        block_table=torch.zeros(count, 1, dtype=torch.int32),
        actual_seq_lengths=list(range(1, count + 1)),
        actual_seq_lengths_kv=[0] * count,
    )


def with_gaps(arguments, name, dim=-1):
    """Give the call with gaps in one tensor, between its elements or between its blocks."""
    wide = arguments[name].repeat_interleave(2, dim)
    return {**arguments, name: wide[..., ::2] if dim else wide[::2]}


WITHIN = [
    tokens(), tokens(block=16), tokens(block=1024), tokens(sparse_mode=0, atten_mask=None),
    tokens(sparse_mode=4), unpaged(192, 128), unpaged(192, 192), padded(), padded(block=16),
    padded(3, block=512),
    padded(layout="BSND"), padded(2, layout="BNSD_BSND"), padded(2, layout="BNSD_NBSD"),
    padded(atten_mask=torch.zeros(2, 1, 1, BLOCK, dtype=torch.bool)), latent(),
    latent(128), latent(1, sparse_mode=3, atten_mask=TRIANGLE), latent(layout="TND_NTD"),
    latent(block=1024), latent(layout="BNSD_NBSD"), many(4096),
]  # fmt: skip
EXCEEDING = [
    *[("contiguous", with_gaps(tokens(), name)) for name in ("query", "key", "atten_mask")],
    *[("contiguous", with_gaps(latent(), name)) for name in ("query_rope", "key_rope")],
    *[("paged_gaps", with_gaps(tokens(), name, 0)) for name in ("key", "value")],
    ("paged_gaps", with_gaps(latent(), "key_rope", 0)),
    ("head_alignment", padded(size=72)),
    ("head_size", tokens(64)),
    ("head_size", unpaged(128, 192, query_rope=torch.zeros(3, HEADS, 64),
                          key_rope=torch.zeros(14, HEADS, 64))),
    ("block_size", tokens(block=24)),
    ("block_size", tokens(block=1040)),
    ("block_size", latent(block=1040)),
    ("block_size", padded(2, block=64)),
    ("block_size", padded(2, block=640)),
    ("block_size", padded(block=1024)),
    ("paged_heads", padded(layout="BSND", key=torch.zeros(BLOCKS, HEADS, BLOCK, 64),
                           value=torch.zeros(BLOCKS, HEADS, BLOCK, 64))),
    ("paged_shapes", tokens(192, value_size=128)),
    ("sparse_mode", tokens(sparse_mode=2)),
    ("sparse_mode", latent(sparse_mode=2, atten_mask=TRIANGLE)),
    ("mask_in_mode_0", tokens(sparse_mode=0, atten_mask=torch.zeros(2, 1, 2, 128).bool())),
    ("mask_over_pages", padded(atten_mask=torch.zeros(2, 1, 1, 64, dtype=torch.bool))),
    ("sequences", many(4097)),
    ("nbsd_rows", padded(1, layout="BNSD_NBSD")),
    ("nbsd_rows", padded(17, layout="BNSD_NBSD")),
    ("transposed_rows", padded(1, layout="BNSD_BSND")),
    ("rope", tokens(query_rope=torch.zeros(3, HEADS, 32),
                    key_rope=torch.zeros(BLOCKS, BLOCK, HEADS * 32))),
    ("latent_heads", latent(6)),
    ("latent_heads", latent(2, kv_heads=2)),
    ("latent_layout", latent(layout="BNSD_BSND")),
    ("latent_log_sums", latent(softmax_lse_flag=True)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv(fused_infer_limits.BEYOND, "")


@pytest.mark.parametrize("number", range(len(WITHIN)))
def test_within(number):
    FIA(**WITHIN[number])


@pytest.mark.parametrize("number", range(len(EXCEEDING)), ids=[name for name, _ in EXCEEDING])
def test_beyond(number, monkeypatch):
    name, arguments = EXCEEDING[number]
    with pytest.raises(OpError, match=rf"NPU_SIM_BEYOND={name} allows it"):
        FIA(**arguments)
    monkeypatch.setenv(fused_infer_limits.BEYOND, name)
    FIA(**arguments)


def test_each_limit_has_a_case():
    assert {name for name, _ in EXCEEDING} == set(fused_infer_limits.LIMITS)


@pytest.mark.parametrize("name", fused_infer_limits.ALLOWED)
def test_what_vllm_ascend_exceeds_is_allowed_by_default(name, monkeypatch):
    monkeypatch.delenv(fused_infer_limits.BEYOND)
    for exceeded, arguments in EXCEEDING:
        if exceeded == name:
            FIA(**arguments)


def test_a_name_of_no_limit_is_an_error(monkeypatch):
    monkeypatch.setenv(fused_infer_limits.BEYOND, "block_sizes")
    with pytest.raises(OpError, match="NPU_SIM_BEYOND names block_sizes; valid: block_size, "):
        FIA(**WITHIN[0])
