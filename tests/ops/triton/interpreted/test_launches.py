"""How often the backends launch a kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton.runtime.interpreter import GridExecutor

from tests.ops.batches import RULES, int32, make_drafts, make_sampled
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels launched so far."""
    names: list[str] = []
    launch = GridExecutor.__call__

    def noted(self: GridExecutor, *args: Any, **kwargs: Any) -> Any:
        names.append(self.fn.__name__)
        return launch(self, *args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", noted)
    return names


def test_greedy_verification_takes_two(launches: list[str]) -> None:
    verify_greedy(**make_drafts([2, 0, 3], 9, 1), backend="triton")
    assert launches == ["scan_greedy", "finalize_greedy"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("with_draft_probs", [False, True])
@pytest.mark.parametrize(
    ("filters", "first"),
    [((), "scan_sampled"), (("top_k",), "filter_rows"), (("top_p", "min_p"), "filter_rows")],
)
def test_sampled_verification_takes_two(
    launches: list[str], filters: tuple[str, ...], first: str, with_draft_probs: bool, rule: str
) -> None:
    arguments = make_sampled([2, 0, 3], 9, 1, filters=filters, with_draft_probs=with_draft_probs)
    verify_sample(**arguments, rule=rule, backend="triton")
    assert launches == [first, "finalize_sampled"]


def test_masking_takes_one(launches: list[str]) -> None:
    grammar_mask(torch.zeros(2, 9), int32([[1], [2]]), int32([0, 1]), backend="triton")
    assert launches == ["mask_rows"]


def test_an_empty_batch_takes_none(launches: list[str]) -> None:
    verify_greedy(torch.empty(0, 5), int32([]), int32([]), 2, backend="triton")
    grammar_mask(torch.zeros(2, 9), torch.zeros(0, 1).int(), int32([]), backend="triton")
    assert launches == []
