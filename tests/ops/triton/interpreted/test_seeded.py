"""The Triton kernels of ``verify_seeded`` against the reference, up to rounding."""

from __future__ import annotations

import pytest
import torch

from tests.ops.cases import KINDS, parity_cases
from tests.ops.seeded import assert_as_the_reference, seeded_case
from vllm_ascend_spec.ops import triton_launch
from vllm_ascend_spec.ops.triton_kernels import noise as kernels
from vllm_ascend_spec.ops.verify_seeded import noise

# "equal" is flatter than "flat" and has the ties of "coarse" and "tied at the top", "huge" is more
# peaked than "peaked", and cases of any kind, most of them "normal", are below.
BY_NIGHT = ("normal", "flat", "coarse", "tied at the top", "peaked")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.nightly if k in BY_NIGHT else ()) for k in KINDS[1:]],
)
def test_every_kind_of_logits(kind: str) -> None:
    cases = list(parity_cases(8, seed=21, kind=kind, max_vocab=300))
    ties = sum(
        assert_as_the_reference(seeded_case(case, i), "triton") for i, case in enumerate(cases)
    )
    assert ties <= 1


def test_rows_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launch, "USUAL_SIDE", 16)
    monkeypatch.setattr(triton_launch, "PROGRAMS_PER_CORE", 40)
    for index, case in enumerate(parity_cases(8, seed=22, vocab_size=1000, max_requests=3)):
        assert_as_the_reference(seeded_case(case, index), "triton")


@pytest.mark.parametrize("wide", [True, False])
def test_bits_equal_the_references(monkeypatch: pytest.MonkeyPatch, wide: bool) -> None:
    """With whole products, and with those that Ascend's compiler gets right."""
    import triton
    import triton.language as tl

    @triton.jit
    def run(counters, seed, out, N: tl.constexpr):
        at = tl.arange(0, N)
        x = tl.load(counters + at).to(tl.uint32, bitcast=True)
        y = tl.load(counters + N + at).to(tl.uint32, bitcast=True)
        z = tl.load(counters + 2 * N + at).to(tl.uint32, bitcast=True)
        w = tl.load(counters + 3 * N + at).to(tl.uint32, bitcast=True)
        x, y, z, w = kernels.philox(x, y, z, w, tl.load(seed))
        tl.store(out + at, x.to(tl.int32, bitcast=True))
        tl.store(out + N + at, y.to(tl.int32, bitcast=True))
        tl.store(out + 2 * N + at, z.to(tl.int32, bitcast=True))
        tl.store(out + 3 * N + at, w.to(tl.int32, bitcast=True))

    monkeypatch.setattr(kernels, "WIDE_PRODUCTS", tl.constexpr(wide))
    generator = torch.Generator().manual_seed(1)
    counters = torch.randint(0, 2**32, (4, 256), generator=generator)
    ends = torch.tensor([0, 1, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFF0000, noise.MASK])
    counters[:, :64] = torch.cartesian_prod(ends, ends).T.repeat(2, 1)
    out = torch.empty(4, 256, dtype=torch.int32)
    for seed in (0, -1, 2**63 - 1, -(2**62) + 5):
        given = torch.tensor([seed])
        run[(1,)](counters.to(torch.uint32).view(torch.int32), given, out, N=256)
        key = (given & noise.MASK, (given >> 32) & noise.MASK)
        expected = torch.stack(noise.philox(tuple(counters), key))
        assert torch.equal(out.long() & noise.MASK, expected)


def test_numbers_are_right_where_they_are_small() -> None:
    """A float32 logarithm of 1 - u would lose them."""
    import triton
    import triton.language as tl

    @triton.jit
    def run(words, out, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(out + at, kernels.exponential(tl.load(words + at).to(tl.uint32, bitcast=True)))

    words = torch.cat(
        [torch.arange(64), 2**31 - 32 + torch.arange(64), 2**32 - 1 - torch.arange(128)]
    )
    out = torch.empty(256)
    run[(1,)](words.to(torch.uint32).view(torch.int32), out, N=256)
    torch.testing.assert_close(out.double(), noise.exponential(words), rtol=3e-7, atol=0.0)
