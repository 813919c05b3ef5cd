"""Hidden states that are kept on the NPU are those that transformers works out on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ascend.matrix import ENGINE, modes
from tests.ascend.modules import run_module


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("full_decode_only", marks=pytest.mark.nightly)]
)
def test_states(mode: str, tmp_path: Path) -> None:
    # The method has one draft.
    arguments = {**ENGINE, **modes(1)[mode]}
    done = run_module("tests.ascend.keep_states", str(tmp_path), json.dumps(arguments))
    assert (tmp_path / "done").is_file(), done.stderr[-4000:]
    assert (tmp_path / "done").read_text() == "SpecNpuPlatform"
    assert len(list(tmp_path.glob("*.safetensors"))) == 4
