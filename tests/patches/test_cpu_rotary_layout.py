"""Rotary positions of queries and keys that are parts of wider tensors, as MLA has them."""

from __future__ import annotations

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.platforms import current_platform

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import cpu_rotary_layout as patch

pytestmark = requires_cpu_build

NOPE, ROPE, LORA = 32, 16, 64
Turned = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def rotary() -> RotaryEmbedding:
    current_platform.import_kernels()
    with set_current_vllm_config(VllmConfig()):
        return RotaryEmbedding(ROPE, ROPE, 64, 10000.0, False, torch.float32)


def parts(num_tokens: int, num_heads: int) -> Turned:
    """Return what MLA turns: parts of its queries and of its compressed keys and values."""
    torch.manual_seed(0)
    queries = torch.randn(num_tokens, num_heads, NOPE + ROPE)
    keys = torch.randn(num_tokens, LORA + ROPE)
    return queries[..., NOPE:], keys[:, LORA:].unsqueeze(1)


def largest_errors(rotary: RotaryEmbedding, num_tokens: int, num_heads: int) -> list[float]:
    """Compare the op with PyTorch; return the largest error of queries and of keys."""
    positions = torch.arange(3, 3 + num_tokens)
    found = rotary.forward_cpu(positions, *parts(num_tokens, num_heads))
    expected = rotary.forward_native(positions, *parts(num_tokens, num_heads))
    shapes = [part.shape for part in parts(num_tokens, num_heads)]
    assert [x.shape for x in found] == shapes
    return [(a - b).abs().max().item() for a, b in zip(found, expected, strict=True)]


@pytest.mark.parametrize(("num_tokens", "num_heads"), [(1, 4), (2, 1), (5, 4)])
def test_stock_fault_and_patch(
    take_out: TakeOut, rotary: RotaryEmbedding, num_tokens: int, num_heads: int
) -> None:
    take_out(patch)
    assert max(largest_errors(rotary, num_tokens, num_heads)) > 1
    patch.apply()
    assert max(largest_errors(rotary, num_tokens, num_heads)) < 1e-6


def test_one_head_of_one_token_is_right_without_the_patch(
    take_out: TakeOut, rotary: RotaryEmbedding
) -> None:
    take_out(patch)
    assert max(largest_errors(rotary, 1, 1)) < 1e-6


def test_heads_side_by_side_are_turned_in_place_as_before(
    take_out: TakeOut, rotary: RotaryEmbedding
) -> None:
    take_out(patch)
    patch.apply()
    positions, wide = torch.arange(5), torch.randn(5, 6 * ROPE)
    queries, keys = wide[:, : 4 * ROPE], wide[:, 4 * ROPE :]
    expected = rotary.forward_native(positions, queries.clone(), keys.clone())
    found = rotary.forward_cpu(positions, queries, keys)
    assert found[0] is queries
    assert torch.allclose(wide, torch.cat(expected, dim=1), atol=1e-6)


def test_a_query_alone(take_out: TakeOut, rotary: RotaryEmbedding) -> None:
    take_out(patch)
    patch.apply()
    queries, keys = parts(5, 4)
    both = rotary.forward_cpu(torch.arange(5), queries, keys)[0]
    alone, none = rotary.forward_cpu(torch.arange(5), queries)
    assert none is None
    assert torch.equal(alone, both)
