"""Requests with min_p or logit_bias while speculation is on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import spec_sampling_params as patch

SPECULATION: Any = SimpleNamespace(method="eagle")


@pytest.mark.parametrize("params", [{"min_p": 0.1}, {"logit_bias": {3: 1.0}}])
def test_stock_fault_and_patch(take_out: TakeOut, params: dict[str, Any]) -> None:
    take_out(patch)
    request = SamplingParams(**params)
    with pytest.raises(
        (ValueError, VLLMValidationError), match="not yet supported with speculative decoding"
    ):
        request._validate_spec_decode(SPECULATION)
    patch.apply()
    request._validate_spec_decode(SPECULATION)


def test_other_checks_stay(take_out: TakeOut) -> None:
    take_out(patch)
    stock = {name: value for name, value in vars(SamplingParams).items() if "valid" in name}
    patch.apply()
    patched = {name: value for name, value in vars(SamplingParams).items() if "valid" in name}
    assert {name for name in stock if stock[name] is not patched[name]} == {"_validate_spec_decode"}
    with pytest.raises((ValueError, VLLMValidationError), match="min_p"):
        SamplingParams(min_p=1.5)


def test_applying_twice_and_reverting(take_out: TakeOut) -> None:
    take_out(patch)
    stock = SamplingParams._validate_spec_decode
    patch.apply()
    patch.apply()
    patch.revert()
    assert SamplingParams._validate_spec_decode is stock
