"""Run cases on the C++ backend in another process and judge what comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.ops.batches import Arguments
from tests.ops.cpu.run_cases import GREEDY_ARGUMENTS
from tests.ops.parity import assert_right, judge, judge_greedy

ROOT = Path(__file__).parents[3]


def run_elsewhere(
    cases: list[Arguments], folder: Path, *, python: str = sys.executable, **environment: str
) -> dict[str, Any]:
    """Return what ``run_cases.py`` saves: results, and what it ran on."""
    source, destination = folder / "cases.pt", folder / "results.pt"
    torch.save(cases, source)
    done = subprocess.run(
        [python, str(Path(__file__).with_name("run_cases.py")), str(source), str(destination)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, Any] = torch.load(destination, weights_only=True)
    return results


def assert_all_right(cases: list[Arguments], results: dict[str, Any], most_ties: float) -> None:
    """Judge the results of all ops."""
    pairs = zip(cases, results["sampled"], strict=True)
    assert_right([judge(case, result) for case, result in pairs], most_ties=most_ties)
    for case, result in zip(cases, results["greedy"], strict=True):
        arguments = {name: case[name] for name in GREEDY_ARGUMENTS}
        assert_right([judge_greedy(arguments, result)], most_ties=0)
    expected = torch.arange(80.0).reshape(2, 40)
    expected[1, [i for i in range(40) if i not in (0, 2, 32)]] = float("-inf")
    assert torch.equal(results["masked"], expected)
