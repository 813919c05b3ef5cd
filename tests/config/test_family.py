"""A method without a drafter for the device's family is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ascend_spec.config import combinations
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import examine
from vllm_ascend_spec.config.method import ALWAYS, Method
from vllm_ascend_spec.devices import cpu, cuda, npu
from vllm_ascend_spec.errors import ConfigError

DRAFTERS = {"vllm": ("echo:Echo",)}
ECHO = Method(name="echo", about="an echo", options=ALWAYS, drafters=DRAFTERS, vllm_method="ngram")
SPEC = {"method": "echo", "num_speculative_tokens": 2}


def resolve(device: Any) -> Any:
    engine = EngineOptions(device=device)
    return examine(None, SPEC, engine=engine, methods={"echo": ECHO}).resolved()


def test_it_is_refused_with_the_families_that_have_it() -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(npu.DEVICE)
    message = str(raised.value)
    assert message.startswith("speculative_config.method='echo': not supported on an Ascend NPU")
    assert message.endswith("it has drafters for: 'vllm'")


@pytest.mark.parametrize("device", [cpu.DEVICE, cuda.DEVICE])
def test_it_passes_where_there_is_one(device: Any) -> None:
    assert resolve(device).drafter == DRAFTERS["vllm"]


def test_without_the_check_an_engine_would_have_nothing_to_draft_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control."""
    others = [rule for rule in combinations.RULES if rule is not combinations.check_family]
    monkeypatch.setattr(combinations, "RULES", others)
    assert resolve(npu.DEVICE).drafter == ()


def test_configurations_that_were_built_by_hand_are_checked_too() -> None:
    assert combinations.check_family in combinations.OF_BUILT
