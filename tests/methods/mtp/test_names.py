"""The names that vLLM had for the method are taken as vLLM takes them."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.zoo import ZOO
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.devices import cpu
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.method_alias import for_vllm
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.mtp.names import NAMES

MODEL = str(ZOO / "target-deepseek")


def test_they_are_vllms() -> None:
    from vllm.config.speculative import MTPModelTypes

    assert {*NAMES, "mtp"} == set(get_args(MTPModelTypes))
    assert len(NAMES) == 26


@pytest.mark.parametrize("name", ["mtp", *sorted(NAMES)])
def test_every_name_is_the_method(name: str) -> None:
    spec = {"method": name, "num_speculative_tokens": 2, "draft_sample_method": "greedy"}
    found = resolve_engine(MODEL, spec, engine=EngineOptions(device=cpu.DEVICE))
    assert found is not None
    assert (found.method, found.vllm_method) == ("mtp", "mtp")
    assert [name in warning for warning in found.warnings] == [True] * (name != "mtp")
    assert for_vllm(spec, found) == {**spec, "method": "mtp"}


def test_a_name_that_vllm_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="'llama_mtp': not supported"):
        resolve_engine(MODEL, {"method": "llama_mtp", "num_speculative_tokens": 2})
