"""K of a step and its reason, as a text behind another."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.control.told import COSTLY, FIXED, REJECTED, SCHEDULED, Told, split
from vllm_ascend_spec.graphs.step import REASONS, Step


@pytest.mark.parametrize("reason", [FIXED, SCHEDULED, REJECTED, COSTLY])
@pytest.mark.parametrize("before", ["", "FULL", *(str(Step("NONE", 3, why)) for why in REASONS)])
def test_there_and_back(before: str, reason: str) -> None:
    told = Told(12, reason)
    assert split(told.behind(before)) == (before, told)


@pytest.mark.parametrize("text", ["", "FULL", "NONE | K=: x", "a | b", "FULL | K=3"])
def test_what_is_not_ours_is_left(text: str) -> None:
    assert split(text) == (text, None)
