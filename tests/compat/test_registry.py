"""The worker's mends by stage."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.compat.conftest import TakeOut, is_applied
from vllm_ascend_spec.compat import registry

# Those of the NPU need vllm-ascend; tests/ascend applies them.
STAGES = [stage for stage in registry.STAGES if stage != "npu"]


def modules(stage: str) -> list[ModuleType]:
    names = registry.STAGES[stage]
    return [importlib.import_module(f"vllm_ascend_spec.compat.{name}") for name in names]


@pytest.mark.parametrize("stage", STAGES)
def test_stage_applies_its_mends_and_no_others(take_out: TakeOut, stage: str) -> None:
    for name in STAGES:
        for mend in modules(name):
            take_out(mend)
    registry.apply(stage)
    registry.apply(stage)
    applied = {name for name in STAGES for mend in modules(name) if is_applied(mend)}
    assert applied == {stage}
    assert all(map(is_applied, modules(stage)))


def patched(mend: ModuleType) -> list[object]:
    return [vars(owner)[name] for owner, name, _ in mend._patches._undo]


@pytest.mark.parametrize("mend", [m for stage in STAGES for m in modules(stage)])
def test_applying_twice_changes_nothing(
    take_out: Callable[[ModuleType], None], mend: ModuleType
) -> None:
    take_out(mend)
    mend.apply()
    once = patched(mend)
    mend.apply()
    assert once
    assert list(map(id, patched(mend))) == list(map(id, once))
