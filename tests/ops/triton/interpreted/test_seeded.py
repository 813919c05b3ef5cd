"""The Triton kernels of ``verify_seeded`` against the reference, up to rounding."""

from __future__ import annotations

import pytest
import torch

from tests.ops.cases import KINDS, parity_cases
from tests.ops.seeded import assert_as_the_reference, seeded_case
from vllm_ascend_spec.ops import triton_launch
from vllm_ascend_spec.ops.triton_kernels import noise as kernels
from vllm_ascend_spec.ops.verify_seeded import noise

# "equal" is flatter than "flat", "tied at the top" has the ties of "coarse", and cases of any kind,
# most of them "normal", are below.
BY_NIGHT = ("normal", "flat", "coarse")


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
