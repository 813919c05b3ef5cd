"""States after accepted drafts; ``tests/e2e/test_state_targets.py`` shows what comes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_accepted_states as patch

pytestmark = requires_cpu_build


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_stock_fault_and_patch(
    is_hybrid: bool, take_out: TakeOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(patch)
    stock: list[int] = []
    committed: list[int] = []
    monkeypatch.setattr(
        GPUModelRunner, "_update_states_after_model_execute", lambda *_: stock.append(1)
    )
    monkeypatch.setattr(patch, "commit_states", lambda runner, count: committed.append(count))
    runner: Any = SimpleNamespace(
        speculative_config=object(), model_config=SimpleNamespace(is_hybrid=is_hybrid)
    )
    CPUModelRunner._update_states_after_model_execute(runner, [[5, -1], [7, 8]], None)
    assert (len(stock), committed) == (1, [])
    patch.apply()
    CPUModelRunner._update_states_after_model_execute(runner, [[5, -1], [7, 8]], None)
    assert (len(stock), committed) == (2, [2] if is_hybrid else [])
