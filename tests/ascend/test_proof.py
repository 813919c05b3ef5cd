"""On the NPU a trained head is measured beside suffix and no speculation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ascend.matrix import MODES
from tests.ascend.modules import run_module
from tests.training.proof_folder import COUNT, ENGINE, GOOD, set_up
from vllm_ascend_spec.training.measure import GREEDY
from vllm_ascend_spec.training.output import Output


@pytest.mark.nightly
def test_the_head_is_worth_what_it_is(tmp_path: Path) -> None:
    settings = set_up(tmp_path / "out", GOOD, engine={**ENGINE, **MODES["eager"]})
    done = run_module("vllm_ascend_spec.training.phases.run", "proof", str(settings.output))
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(Output(settings.output).report.read_text())
    assert report["results"]["head"][GREEDY]["tokens_per_step"] > 1.5
    assert report["same_texts"]["head"][GREEDY] == COUNT
