"""Drafts for targets that a CPU cannot run are worth as much as the record says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.zoo import evaluate
from tests.ascend.environment import NPU, ROOT
from tests.ascend.targets.mla import MLA_ENVIRONMENT
from tests.e2e.golden import is_worth_its_record
from vllm_ascend_spec.cli import env

pytestmark = [pytest.mark.timeout(1800), pytest.mark.nightly]
REQUEST = "greedy"
ON_NPU = [name for name, draft in evaluate.DRAFTS.items() if draft.device == "npu"]


@pytest.mark.parametrize("name", ON_NPU)
def test_acceptance_has_not_fallen(name: str, tmp_path: Path) -> None:
    record = tmp_path / "evaluation.json"
    script = [str(ROOT / "examples" / "zoo" / "evaluate.py"), name, "--requests", REQUEST]
    environment = {**NPU, **MLA_ENVIRONMENT, "VLLM_PLUGINS": str(env.plugins({}))}
    subprocess.run(
        [sys.executable, *script, "--record", str(record)],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        check=True,
    )
    (result,) = json.loads(record.read_text())["results"].values()
    figure = result[REQUEST]["tokens_per_step"]
    assert is_worth_its_record(name, REQUEST, figure), result
