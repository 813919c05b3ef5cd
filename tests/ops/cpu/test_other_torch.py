"""The one library runs in every supported torch, unchanged.

Name other interpreters, separated by colons: VLLM_ASCEND_SPEC_OTHER_TORCH=/path/to/venv/bin/python.
They need torch and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.ops.cases import parity_cases
from tests.ops.cpu.marks import requires_library
from tests.ops.cpu.other_process import assert_all_right, run_elsewhere

VARIABLE = "VLLM_ASCEND_SPEC_OTHER_TORCH"
OTHERS = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
NONE = pytest.param("", marks=pytest.mark.skip(reason=f"{VARIABLE} names no interpreter"))


@requires_library
@pytest.mark.parametrize("python", OTHERS or [NONE])
def test_library_built_here_runs_in_another_torch(python: str, tmp_path: Path) -> None:
    cases = [
        *parity_cases(400, seed=31),
        *parity_cases(2, seed=32, vocab_size=151936, max_requests=2, max_drafts=2),
    ]
    results = run_elsewhere(cases, tmp_path, python=python)
    print(f"{python}: torch {results['torch']}, built with {torch.__version__}")
    assert_all_right(cases, results, most_ties=0.02)
