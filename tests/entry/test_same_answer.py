"""What ``check`` says for a device is what an engine's start on that device does."""

from __future__ import annotations

import pytest

from tests.entry.same_answer import DEVICES, ROWS, require_same_answer
from tests.entry.test_handover import ENGINE


def test_the_table_is_of_some_size() -> None:
    for device in DEVICES:
        refused = [row for row in ROWS.values() if row.refused_on(device) is not None]
        assert len(refused) >= 15
        assert len(ROWS) - len(refused) >= 15


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ROWS)
def test_check_and_an_engine_say_the_same(
    name: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The rules of that device; what vLLM builds is for the CPU either way.
    monkeypatch.setenv("VLLM_ASCEND_SPEC_DEVICE", device)
    base = {name: value for name, value in ENGINE.items() if name != "enforce_eager"}
    require_same_answer(name, device, base, capsys)


def test_an_engine_that_differs_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Negative control: the engine's start without our hook."""
    from vllm_ascend_spec.entry import engine_hook

    monkeypatch.setattr(engine_hook, "resolve_args", lambda args: None)
    with pytest.raises(AssertionError):
        require_same_answer("lookup with eagle", "cpu", ENGINE, capsys)
