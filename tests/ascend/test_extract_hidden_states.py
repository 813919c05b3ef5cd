"""Hidden states that are kept on the NPU are those that transformers works out on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ascend.environment import NPU
from tests.ascend.matrix import ENGINE, modes
from tests.ascend.processes import Engines


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("full_decode_only", marks=pytest.mark.nightly)]
)
def test_states(mode: str, tmp_path: Path, engines: Engines) -> None:
    # The method has one draft.
    arguments = {**ENGINE, **modes(1)[mode]}
    job = {"arguments": arguments, "folder": str(tmp_path), "output": str(tmp_path / "done")}
    engines.start({"module": "tests.ascend.keep_states", **job}, NPU)
    assert (tmp_path / "done").read_text() == "SpecNpuPlatform"
    assert len(list(tmp_path.glob("*.safetensors"))) == 4
