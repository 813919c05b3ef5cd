"""The most likely token: PyTorch's argmax, by another way where there is a faster one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_ascend_spec.methods.loops import argmax as module
from vllm_ascend_spec.methods.loops.argmax import DTYPES, argmax


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 1)


def test_few_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 7)
    monkeypatch.setattr(module, "OP", None)
    assert argmax(torch.eye(2, 3)).tolist() == [0, 1]
    with pytest.raises(AttributeError):
        argmax(torch.eye(3, 3))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 1 << 30),
    num_rows=st.integers(0, 5),
    width=st.integers(1, 300),
    dtype=st.sampled_from([*DTYPES, torch.float64]),
    few=st.booleans(),
)
def test_equals_argmax(seed: int, num_rows: int, width: int, dtype: torch.dtype, few: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Rows of a wider tensor, as where the vocabulary is padded.
    wide = torch.randn(num_rows, width + 7, generator=generator).to(dtype)
    if few:  # values, so that several are the largest
        wide = wide.round()
    logits = wide[:, :width]
    found = argmax(logits)
    assert found.dtype == torch.int64
    assert found.shape == (num_rows,)
    for row, token in zip(logits.float(), found.tolist(), strict=True):
        assert token == int((row == row.max()).nonzero()[0])


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_row_without_numbers_yields_a_token(bad: float) -> None:
    assert 0 <= int(argmax(torch.full((1, 9), bad))) < 9


def test_pytorch_is_asked_where_nothing_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_built", lambda: False)
    monkeypatch.setattr(module, "OP", None)
    assert argmax(torch.tensor([[1.0, 3.0, 2.0]])).tolist() == [1]
