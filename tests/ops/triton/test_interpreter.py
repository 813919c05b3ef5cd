"""Runs the tests that need Triton's interpreter, in a process that has it from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.triton.conftest import INTERPRETED

pytest.importorskip("triton", reason="needs the package triton")
pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter is on: run the folder itself")

ROOT = Path(__file__).parents[3]
CONTRACT = ("verify_greedy", "verify_sample", "grammar_mask", "block_rule", "acceptance")
# Hundreds of calls each; interpreted/test_parity.py covers the same ground with fewer.
TOO_SLOW = "not test_equals_the_oracle and not test_filters_keep_ties_together"


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/ops/triton/interpreted"],
        [*(f"tests/ops/test_{name}.py" for name in CONTRACT), "-k", TOO_SLOW],
    ],
    ids=["own", "contract"],
)
def test_kernels_under_the_interpreter(tests: list[str]) -> None:
    plugins = ["-p", "no:cacheprovider", "-p", "tests.ops.triton.on_triton"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore", *plugins, *tests],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    report = f"{result.stdout}\n{result.stderr}"
    assert result.returncode == 0, report
    assert " passed" in report, report
