"""A drafter without weights on the CPU runner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.worker import cpu_model_runner
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from tests.compat.conftest import TakeOut
from tests.conftest import requires_cpu_build
from vllm_ascend_spec.compat import cpu_drafter_load_model as mend

pytestmark = requires_cpu_build

MODEL = object()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a CPU runner that has just enough to load ``MODEL``."""
    monkeypatch.setattr(cpu_model_runner, "get_model", lambda vllm_config: MODEL)
    monkeypatch.setattr(CPUModelRunner, "_setup_eagle3_aux_hidden_state_outputs", lambda self: None)
    bare = object.__new__(CPUModelRunner)
    bare.model_config = SimpleNamespace(model="tiny")  # type: ignore[assignment]
    bare.vllm_config = SimpleNamespace()  # type: ignore[assignment]
    bare.lora_config = None
    return bare


def test_stock_fault_and_mend(take_out: TakeOut, runner: Any) -> None:
    take_out(mend)
    runner.drafter = SimpleNamespace()
    with pytest.raises(AttributeError, match="load_model"):
        runner.load_model()
    mend.apply()
    runner.load_model()
    assert runner.model is MODEL


def test_drafter_with_weights_still_loads_them(take_out: TakeOut, runner: Any) -> None:
    take_out(mend)
    mend.apply()
    loaded: list[object] = []
    runner.drafter = SimpleNamespace(load_model=loaded.append)
    runner.load_model()
    assert loaded == [MODEL]


def test_runner_without_a_drafter_loads(take_out: TakeOut, runner: Any) -> None:
    take_out(mend)
    mend.apply()
    runner.load_model()
    assert runner.model is MODEL


def test_dummy_weights_are_still_refused(take_out: TakeOut, runner: Any) -> None:
    take_out(mend)
    mend.apply()
    with pytest.raises(ValueError, match="dummy weights"):
        runner.load_model(load_dummy_weights=True)
