"""A backend that was asked for and cannot run is refused before anything is loaded."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.ops import OPS
from vllm_ascend_spec.ops.registry import Op
from vllm_ascend_spec.verification.backend import require_backend


@pytest.mark.parametrize("device", ["cpu", "cuda", "npu"])
def test_what_can_run_passes(device: str) -> None:
    require_backend("reference", device)
    require_backend(None, device)


def test_no_backend_by_name_asks_no_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Op, "status", None)
    require_backend(None, "cpu")


@pytest.mark.parametrize("broken", [op.name for op in OPS])
def test_every_op_has_to_be_able_to_run_it(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(self: Op, device_type: str) -> dict[str, str]:
        return {"cpu": f"not on {device_type}" if self.name == broken else "ready"}

    monkeypatch.setattr(Op, "status", status)
    with pytest.raises(ConfigError) as raised:
        require_backend("cpu", "npu")
    assert str(raised.value) == "additional_config.ascend_spec.verify_backend='cpu': not on npu"


def test_backend_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="verify_greedy has no such backend"):
        require_backend("abacus", "cpu")


def test_wrong_device_is_named() -> None:
    with pytest.raises(ConfigError, match="these are on npu"):
        require_backend("cpu", "npu")
