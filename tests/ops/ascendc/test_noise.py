"""The noise of ``verify_seeded``'s AscendC kernels: the generator's bits, and its numbers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from tests.ops.emulator.build import AUTO_NONE, Host, build, requires_compiler
from tests.ops.test_verify_seeded import VECTORS
from vllm_ascend_spec.ops.verify_seeded.noise import MASK, exponential, philox

pytestmark = requires_compiler
LANES = 64


@cache
def host() -> Host:
    return Host(build(Path(__file__).parent / "noise_host.cpp"), auto_sync=AUTO_NONE)


def words_of(counters: torch.Tensor, key: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the vector and the scalar generator make of int64 [4, n], as int64 [4, n]."""
    given = counters.to(torch.uint32).view(torch.int32).contiguous()
    vector, scalar = torch.zeros_like(given), torch.zeros_like(given)
    host()("philox_emulator", 1, given, vector, scalar, given.shape[1], *key)
    return vector.long() & MASK, scalar.long() & MASK


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_the_generators_give_their_authors_numbers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    given = torch.tensor(counter)[:, None].expand(-1, LANES)
    for words in words_of(given, key):
        assert torch.equal(words, torch.tensor(expected)[:, None].expand(-1, LANES))


@pytest.mark.parametrize("key", [(0, 0), (MASK, 1), (0x80000000, 0x7FFFFFFF), (12345, 987654321)])
def test_bits_equal_the_references(key: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(key[0])
    counters = torch.randint(0, 2**32, (4, 1536), generator=generator)
    # Halves at the ends of their range carry the most.
    ends = torch.tensor([0, 1, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFF0000, MASK])
    counters[:, :64] = torch.cartesian_prod(ends, ends).T.repeat(2, 1)
    expected = torch.stack(
        torch.broadcast_tensors(*philox(tuple(counters), tuple(map(torch.tensor, key))))
    )
    for words in words_of(counters, key):
        assert torch.equal(words, expected)


def test_numbers_are_right_where_they_are_small() -> None:
    """A float32 logarithm of 1 - u would lose them."""
    words = torch.cat(
        [torch.arange(64), 2**31 - 32 + torch.arange(64), 2**32 - 1 - torch.arange(128)]
    )
    numbers = torch.zeros(256)
    given = words.to(torch.uint32).view(torch.int32)
    host()("exponential_emulator", 1, given, numbers, 256)
    torch.testing.assert_close(numbers.double(), exponential(words), rtol=4e-7, atol=0.0)


def test_a_call_takes_as_many_instructions_for_one_repeat_as_for_many() -> None:
    counts = []
    for lanes in (LANES, 1536):
        given = torch.zeros(4, lanes, dtype=torch.int32)
        outputs = (torch.zeros_like(given), torch.zeros_like(given))
        counts.append(host()("philox_emulator", 1, given, *outputs, lanes, 1, 2))
    one, many = (stats.pipes("instructions")["V"] for stats in counts)
    assert one == many < 500
    assert counts[1].vector_bytes == 24 * counts[0].vector_bytes
