"""What ``check`` says for an NPU is what an engine's start on one does; the CPU's rows likewise."""

from __future__ import annotations

import pytest

from tests.ascend.matrix import ENGINE
from tests.hooks.same_answer import ROWS, require_same_answer


@pytest.mark.parametrize("name", ROWS)
def test_check_and_an_engine_say_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    require_same_answer(name, "npu", ENGINE, capsys)
