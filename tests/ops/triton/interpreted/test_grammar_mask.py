"""``grammar_mask`` in Triton against its reference, bit by bit."""

from __future__ import annotations

import pytest
import torch

from tests.ops.batches import DTYPES, int32, with_wide_stride
from vllm_ascend_spec.ops import grammar_mask


def random_bits(num_masked: int, vocab: int, *, spare_words: int = 0) -> torch.Tensor:
    words = (num_masked, -(-vocab // 32) + spare_words)
    generator = torch.Generator().manual_seed(vocab)
    return torch.randint(-(2**31), 2**31, words, generator=generator).int()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 4095, 4097, 32_001])
def test_equals_the_reference(vocab: int, dtype: torch.dtype) -> None:
    logits = torch.randn(5, vocab).to(dtype)
    rows, bits = int32([3, -1, 0]), random_bits(3, vocab, spare_words=2)
    expected, masked = logits.clone(), logits.clone()
    grammar_mask(expected, bits, rows, backend="reference")
    grammar_mask(masked, bits, rows, backend="triton")
    assert torch.equal(masked, expected)
    assert not torch.equal(masked, logits) or vocab == 1


def test_what_lies_between_the_rows_is_left_alone() -> None:
    logits = with_wide_stride(torch.randn(3, 100))
    buffer = torch.as_strided(logits, (3, logits.stride(0)), logits.stride())
    before = buffer.clone()
    grammar_mask(logits, torch.zeros(2, 4, dtype=torch.int32), int32([2, 0]), backend="triton")
    assert bool((logits[[0, 2]] == float("-inf")).all())
    assert torch.equal(buffer[1], before[1])
    assert torch.equal(buffer[:, 100:], before[:, 100:])


def test_allowed_logits_keep_what_they_are() -> None:
    logits = torch.tensor([[float("nan"), float("inf"), -0.0, 7.0]])
    grammar_mask(logits, int32([0b0111])[None], int32([0]), backend="triton")
    assert logits[0, 0].isnan()
    assert logits[0, 1:].tolist() == [float("inf"), 0.0, float("-inf")]


def test_nothing_to_mask() -> None:
    logits = torch.randn(2, 40)
    before = logits.clone()
    grammar_mask(logits, torch.zeros(0, 2, dtype=torch.int32), int32([]), backend="triton")
    grammar_mask(logits, torch.zeros(1, 2, dtype=torch.int32), int32([-1]), backend="triton")
    assert torch.equal(logits, before)
