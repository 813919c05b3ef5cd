"""Hidden states that are kept on the NPU are those that transformers works out on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ascend.environment import NPU, ROOT
from tests.ascend.matrix import ENGINE, MODES
from vllm_ascend_spec.cli import env


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("full_decode_only", marks=pytest.mark.nightly)]
)
def test_states(mode: str, tmp_path: Path) -> None:
    arguments = {**ENGINE, **MODES[mode]}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ascend.keep_states", str(tmp_path), json.dumps(arguments)],
        env={**os.environ, **NPU, "VLLM_PLUGINS": str(env.plugins({}))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert (tmp_path / "done").is_file(), done.stderr[-4000:]
    assert (tmp_path / "done").read_text() == "SpecNpuPlatform"
    assert len(list(tmp_path.glob("*.safetensors"))) == 4
