"""On the NPU a trained head is measured beside suffix and no speculation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ascend.environment import NPU, ROOT
from tests.ascend.matrix import MODES
from tests.training.proof_folder import COUNT, ENGINE, GOOD, set_up
from vllm_ascend_spec.cli import env
from vllm_ascend_spec.training.measure import GREEDY
from vllm_ascend_spec.training.output import Output


@pytest.mark.nightly
def test_the_head_is_worth_what_it_is(tmp_path: Path) -> None:
    settings = set_up(tmp_path / "out", GOOD, engine={**ENGINE, **MODES["eager"]})
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "vllm_ascend_spec.training.phases.run",
            "proof",
            str(settings.output),
        ],
        env={**os.environ, **NPU, "VLLM_PLUGINS": str(env.plugins({}))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(Output(settings.output).report.read_text())
    assert report["results"]["head"][GREEDY]["tokens_per_step"] > 1.5
    assert report["same_texts"]["head"][GREEDY] == COUNT
