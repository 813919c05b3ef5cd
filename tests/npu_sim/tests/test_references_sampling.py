"""Top-k and top-p against a loop over rows."""

import math

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError

OPS = load_all()
NAME = "npu::npu_top_k_top_p"


def looped(row, p, k):
    """Give the indices that stay of a list of logits."""
    order = sorted(range(len(row)), key=lambda i: row[i])  # stable, as the op's sort is
    threshold = row[order[len(row) - k]] if k is not None else -math.inf
    kept = [i for i in order if row[i] >= threshold]
    if p is None:
        return set(kept)
    total = sum(math.exp(row[i]) for i in kept)
    mass, stay = 0.0, set()
    for i in kept:
        mass += math.exp(row[i]) / total
        if mass > 1 - p or i == order[-1]:
            stay.add(i)
    return stay


@pytest.mark.parametrize(("rows", "vocab"), [(1, 1), (5, 13), (3, 64)])
@pytest.mark.parametrize(("with_p", "with_k"), [(False, True), (True, False), (True, True)])
def test_keeps_what_a_loop_keeps(rows, vocab, with_p, with_k):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(rows, vocab, generator=generator) * 3
    p = torch.rand(rows, generator=generator) if with_p else None
    k = torch.randint(1, vocab + 1, (rows,), generator=generator).int() if with_k else None
    out = OPS[NAME](logits, p, k)
    for i in range(rows):
        stay = looped(
            logits[i].tolist(), float(p[i]) if with_p else None, int(k[i]) if with_k else None
        )
        assert set(torch.isfinite(out[i]).nonzero().flatten().tolist()) == stay
        for j in stay:
            assert out[i, j] == logits[i, j]


def test_ties_at_the_threshold_all_stay():
    out = OPS[NAME](torch.tensor([[1.0, 2.0, 2.0, 2.0]]), None, torch.tensor([2]).int())
    assert torch.isfinite(out).tolist() == [[False, True, True, True]]


def test_top_p_of_zero_keeps_one():
    out = OPS[NAME](torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([0.0]))
    assert torch.isfinite(out).tolist() == [[False, True, False]]


def test_no_rows():
    out = OPS[NAME](torch.zeros(0, 4), torch.zeros(0), torch.zeros(0).int())
    assert out.shape == (0, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtype_is_kept(dtype):
    logits = torch.tensor([[0.0, 4.0, 2.0]], dtype=dtype)
    out = OPS[NAME](logits, torch.tensor([0.5], dtype=dtype))
    assert out.dtype == dtype
    assert torch.isfinite(out).tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "neither p nor k"),
        ((torch.tensor([0.5]).half(),), "p is torch.float16"),
        ((torch.tensor([1.5]),), "outside .0, 1."),
        ((None, torch.tensor([0]).int()), "k is outside .1, 2000|k is outside .1, 1024"),
        ((None, torch.tensor([1025]).int()), "k is outside .1, 1024"),
        ((None, torch.tensor([5])), "k is torch.int64"),
        ((None, torch.tensor([5, 5]).int()), "k has shape"),
    ],
)
def test_refused(arguments, reason):
    with pytest.raises(OpError, match=rf"^{NAME}: .*({reason})"):
        OPS[NAME](torch.zeros(1, 2000), *arguments)
