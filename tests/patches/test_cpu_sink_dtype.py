"""Attention with sinks in float32."""

from __future__ import annotations

import pytest
import torch
from vllm import _custom_ops as ops
from vllm.platforms import current_platform

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import cpu_sink_dtype as patch

pytestmark = requires_cpu_build

ROWS, HEADS, SIZE, BLOCK = 5, 2, 64, 32


def attend(
    queries: torch.Tensor,  # [rows, heads, size]
    keys: torch.Tensor,  # [rows, heads, size]
    values: torch.Tensor,  # [rows, heads, size]
    sinks: torch.Tensor,  # [heads]
) -> torch.Tensor:
    """Return what vLLM's op gives for the rows of one new request."""
    current_platform.import_kernels()
    starts = torch.tensor([0, ROWS], dtype=torch.int32)
    lengths = torch.tensor([ROWS], dtype=torch.int32)
    caches = torch.zeros(2, 1, HEADS, BLOCK, SIZE)
    slots = torch.arange(ROWS)
    ops.cpu_attn_reshape_and_cache(keys, values, caches[0], caches[1], slots, "vec")
    shape = (1, HEADS, HEADS, SIZE, lengths, queries.dtype, starts)
    output = torch.empty_like(queries)
    ops.cpu_attention_with_kv_cache(
        query=queries,
        key_cache=caches[0],
        value_cache=caches[1],
        output=output,
        query_start_loc=starts,
        seq_lens=lengths,
        scale=SIZE**-0.5,
        causal=True,
        alibi_slopes=None,
        sliding_window=-1,
        block_table=torch.zeros(1, 1, dtype=torch.int32),
        softcap=0.0,
        scheduler_metadata=ops.cpu_attn_get_scheduler_metadata(*shape, True, -1, "vec", False),
        s_aux=sinks,
    )
    return output


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, ROWS, HEADS, SIZE)
    # Representable in bfloat16.
    sinks = torch.tensor([0.5, -1.25])
    take_out(patch)
    with pytest.raises(RuntimeError, match="expected scalar type BFloat16 but found Float"):
        attend(queries, keys, values, sinks)
    patch.apply()
    found = attend(queries, keys, values, sinks)
    scores = torch.einsum("qhd,khd->hqk", queries, keys) * SIZE**-0.5
    scores = scores.masked_fill(torch.ones(ROWS, ROWS).triu(1).bool(), float("-inf"))
    # A sink takes a share and gives nothing.
    shares = torch.cat([scores, sinks.view(-1, 1, 1).expand(-1, ROWS, 1)], -1).softmax(-1)
    expected = torch.einsum("hqk,khd->qhd", shares[..., :-1], values)
    torch.testing.assert_close(found, expected)
