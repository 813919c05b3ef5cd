"""The reference of ``tree_attention`` against each row's path, and what is no argument of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.tree_attention import Batch, Request, assert_right, attend, dense
from vllm_ascend_spec.ops.tree_attention import tree_attention
from vllm_ascend_spec.worker.tree_plan import bits_of, mask_of

BUSHY = (-1, 0, 1, -1, 0, 3, 1, 5, -1, 8)
MIXED = (Request(37, 1, BUSHY), Request(0, 20), Request(5, 3, (-1, -1, 0)), Request(64, 1, (-1, 0)))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    size = draw(st.integers(0, 12))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    return Request(draw(st.integers(0, 70)), draw(st.integers(1, 5)), parents)


@settings(max_examples=25, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=4), st.integers(0, 2**31))
def test_every_row_attends_along_its_path(batch: list[Request], seed: int) -> None:
    assert_right(Batch(batch, seed=seed, padding=seed % 3), "reference")


@pytest.mark.parametrize(
    "options", [{"window": 64}, {"soft_cap": 2.0}, {"sinks": torch.tensor([0.5, -1, 9, 0])}]
)
def test_windows_caps_and_sinks(options: dict[str, Any]) -> None:
    long = Request(150, 1, BUSHY)
    assert_right(Batch([long, *MIXED], options=options), "reference")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    assert_right(Batch(MIXED, dtype=dtype), "reference")


@pytest.mark.parametrize("place", [0, 5, 9])
def test_a_wrong_bit_is_found(place: int) -> None:
    """Negative control: a sibling that is seen, or a parent that is not."""
    batch = Batch(MIXED)
    arguments = batch.arguments()
    expected = dense(MIXED, arguments)
    arguments["seen"][place + 1] ^= 1 << (len(BUSHY) - max(place - 1, 0))
    wrong = attend(arguments, "reference")[: expected.shape[0]].double() - expected
    assert float(wrong[place + 1].abs().max()) > 1e-3
    wrong[place + 1] = 0
    assert float(wrong.abs().max()) < 1e-5


@given(st.integers(0, 63), st.data())
def test_bits_are_the_mask(size: int, data: st.DataObject) -> None:
    parents = tuple(data.draw(st.integers(-1, node - 1)) for node in range(size))
    hidden = mask_of(parents, size + 1, size + 1)
    for row, bits in enumerate(bits_of(parents).tolist()):
        for other in range(row + 1):
            assert bool(bits >> (size - other) & 1) is not hidden[row, other]
        # The text before the root, and what comes after the row, which it does not see anyhow.
        assert (bits >> (size + 1)) == -1
        assert bits | -(1 << (size - row)) == -1


def test_rows_of_a_dummy_run_are_finite() -> None:
    arguments = Batch([Request(20, 1, (-1, 0, -1))]).arguments()
    arguments["seq_lens"].fill_(1)
    output = attend(arguments, "reference")
    assert bool((output[:3] == 0).all())
    assert bool(output[3].isfinite().all())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seen": torch.zeros(3).long()}, "seen: shape"),
        ({"seen": torch.zeros(40).int()}, "seen: dtype"),
        ({"query_start_loc": torch.zeros(9).int()}, "query_start_loc: shape"),
        ({"window": 63}, "window: 63, valid: 0, or 64 and more"),
        ({"query": torch.zeros(40, 3, 32)}, "query: 3 heads, no multiple of 2"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], words: str) -> None:
    arguments = Batch(MIXED).arguments()
    with pytest.raises(ValueError, match=words):
        tree_attention(**{**arguments, **wrong}, output=torch.zeros_like(arguments["query"]))
