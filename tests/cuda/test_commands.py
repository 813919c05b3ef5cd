"""The commands on a GPU, and what is refused there before anything is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import ROOT
from tests.cuda.gpu import TRIED, requires_gpu
from tests.zoo import SPECS, TARGET

pytestmark = [requires_gpu, pytest.mark.cuda, pytest.mark.timeout(1800)]
EAGLE = SPECS["eagle"]
COMMAND = "vllm_ascend_spec.cli.main"


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **TRIED.environment, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_bench_verify_measures_and_judges_the_backends(tmp_path: Path) -> None:
    output = tmp_path / "verify.json"
    small = ("--device", TRIED.device, "--quick")
    done = run("tests.benchmarks", "verify", *small, "--output", str(output))
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads(output.read_text())
    assert record["device"]["type"] == TRIED.device
    expected = "triton" if TRIED.device == "cuda" else "cpu"
    assert expected in json.dumps(record["results"])


def test_info_names_the_device_and_what_is_ready() -> None:
    done = run(COMMAND, "info")
    assert done.returncode == 0, done.stderr[-3000:]
    assert TRIED.platform in done.stdout


START = """
import json, sys
if __name__ == "__main__":
    from vllm import LLM
    LLM(model={target!r}, dtype="float32", max_model_len=512, kv_cache_memory_bytes=64 << 20,
        enforce_eager=True, speculative_config=json.loads(sys.argv[1]))
"""


def start(tmp_path: Path, spec: dict[str, Any], **environment: str) -> str:
    """Start an engine that has to be refused and return its last line."""
    script = tmp_path / "start.py"
    script.write_text(START.format(target=TARGET))
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(spec)],
        env={**os.environ, **TRIED.environment, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_speculative_tokens": 65}, "num_speculative_tokens=65"),
        ({"method": "telepathy"}, "speculative_config.method='telepathy'"),
        ({"model": "nowhere/at/all"}, "speculative_config.model='nowhere/at/all'"),
    ],
)
def test_wrong_input_is_refused_by_name(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in start(tmp_path, {**EAGLE, **change})


def test_model_runner_v2_is_refused_by_name(tmp_path: Path) -> None:
    variable = "VLLM_USE_V2_MODEL_RUNNER"
    assert f"{variable}='1'" in start(tmp_path, EAGLE, **{variable: "1"})
