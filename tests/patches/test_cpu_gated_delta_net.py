"""vLLM's Gated DeltaNet layer on a CPU: its metadata and its core, as an engine calls them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import _custom_ops, forward_context
from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention
from vllm.platforms import current_platform
from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_gated_delta_net as patch

pytestmark = requires_cpu_build

K, KEY_HEADS, NUM_HEADS, SIZE, KERNEL = 3, 2, 4, 64, 4
WIDTH = (2 * KEY_HEADS + NUM_HEADS) * SIZE
BLOCKS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=torch.int32)


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    current_platform.import_kernels()


class Layer:
    """What the core reads of vLLM's layer; its cache holds other requests' states."""

    activation, prefix = "silu", "layer"

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        torch.manual_seed(0)
        weight = torch.randn(WIDTH, KERNEL).to(dtype) * 0.5
        packed = _custom_ops.causal_conv1d_weight_pack(weight.clone())
        self.conv1d = SimpleNamespace(weight=packed, _cpu_unpacked_conv_weight=weight, bias=None)
        self.A_log, self.dt_bias = torch.rand(NUM_HEADS), torch.randn(NUM_HEADS).to(dtype)
        torch.manual_seed(seed)
        inputs = torch.randn(9, KERNEL - 1 + K, WIDTH).to(dtype) * 0.3
        self.kv_cache = (inputs, torch.randn(9, NUM_HEADS, SIZE, SIZE) * 0.3)

    def rearrange_mixed_qkv(self, mixed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = mixed.split([KEY_HEADS * SIZE, KEY_HEADS * SIZE, NUM_HEADS * SIZE], -1)
        return tuple(part.reshape(1, len(mixed), -1, SIZE).contiguous() for part in parts)


def metadata(
    lengths: list[int], computed: list[int], dtype: torch.dtype, *, speculates: bool
) -> Any:
    """Let vLLM's builder make it for a step without drafts."""
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    read = torch.tensor(computed).int()
    common = SimpleNamespace(
        query_start_loc=bounds,
        query_start_loc_cpu=bounds,
        block_table_tensor=BLOCKS,
        seq_lens=read + torch.tensor(lengths).int(),
        num_reqs=len(lengths),
        num_actual_tokens=sum(lengths),
        max_query_len=max(lengths),
        compute_num_computed_tokens=lambda: read,
    )
    builder = SimpleNamespace(
        use_spec_decode=True,
        num_spec=K,
        use_full_cuda_graph=False,
        decode_cudagraph_max_bs=0,
        kv_cache_spec=None,
        vllm_config=SimpleNamespace(
            cache_config=SimpleNamespace(mamba_cache_mode="none"),
            model_config=SimpleNamespace(dtype=dtype),
            speculative_config=object() if speculates else None,
        ),
        _build_chunk_metadata=lambda *_: (None, None),
    )
    return GDNAttentionMetadataBuilder.build(builder, 0, common)


def run(
    layer: Layer,
    lengths: list[int],
    computed: list[int],
    dtype: torch.dtype,
    *,
    speculates: bool = True,
) -> torch.Tensor:
    """Run the core on random rows."""
    found = metadata(lengths, computed, dtype, speculates=speculates)
    context = SimpleNamespace(
        no_compile_layers={layer.prefix: layer}, attn_metadata={layer.prefix: found}
    )
    generator = torch.Generator().manual_seed(7)
    mixed, b, a = (
        torch.randn(sum(lengths), width, generator=generator).to(dtype)
        for width in (WIDTH, NUM_HEADS, NUM_HEADS)
    )
    out = torch.zeros(sum(lengths), NUM_HEADS, SIZE).to(dtype)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forward_context, "get_forward_context", lambda: context)
        patched.setattr(gdn_attention, "get_forward_context", lambda: context)
        gdn_attention.cpu_gdn_attention_core(mixed, b, a, out, layer.prefix)
    return out


def depends_on_other_requests(lengths: list[int]) -> bool:
    """Tell whether new requests read what others left in their blocks."""
    first, second = (
        run(Layer(torch.bfloat16, seed), lengths, [0, 0], torch.bfloat16) for seed in (1, 2)
    )
    return not torch.equal(first, second)


def test_stock_fault_and_patch_where_a_prompt_begins_with_one_token(take_out: TakeOut) -> None:
    take_out(patch)
    assert depends_on_other_requests([1, 1])
    patch.apply()
    assert not depends_on_other_requests([1, 1])
    assert not depends_on_other_requests([1, 9])


def test_stock_fault_and_patch_in_float32(take_out: TakeOut) -> None:
    take_out(patch)
    with pytest.raises(RuntimeError, match="not implemented for 'Float'"):
        Layer(torch.float32, 1)
    patch.apply()
    layer = Layer(torch.float32, 1)
    patch.revert()
    with pytest.raises(AssertionError, match="requires BF16"):
        run(layer, [5, 3], [0, 0], torch.float32)
    patch.apply()
    exact = run(layer, [5, 3], [0, 0], torch.float32)
    rounded = run(Layer(torch.bfloat16, 1), [5, 3], [0, 0], torch.bfloat16)
    assert (exact - rounded.float()).abs().max() < 0.05 * exact.abs().max()


def test_prompts_in_bfloat16_are_nearly_vllms(take_out: TakeOut) -> None:
    take_out(patch)
    stock = run(Layer(torch.bfloat16, 1), [70, 9], [0, 0], torch.bfloat16)
    patch.apply()
    ours = run(Layer(torch.bfloat16, 1), [70, 9], [0, 0], torch.bfloat16)
    assert (ours - stock).abs().max() < 0.05 * stock.abs().max()


def test_an_engine_in_bfloat16_without_speculation_keeps_vllms(take_out: TakeOut) -> None:
    def outputs() -> torch.Tensor:
        layer = Layer(torch.bfloat16, 1)
        return run(layer, [70, 9], [0, 0], torch.bfloat16, speculates=False)

    take_out(patch)
    stock = outputs()
    patch.apply()
    assert torch.equal(outputs(), stock)
    assert not torch.equal(run(Layer(torch.bfloat16, 1), [70, 9], [0, 0], torch.bfloat16), stock)
    exact = run(Layer(torch.float32, 1), [70, 9], [0, 0], torch.float32, speculates=False)
    assert exact.isfinite().all()
