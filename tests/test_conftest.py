"""What conftest.py does for every test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vllm import envs

from vllm_ascend_spec.bench import local_engine


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_variables_are_read_anew(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The first of the two leaves a cache behind, as an engine in this process does."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", method)
    assert method == envs.VLLM_WORKER_MULTIPROC_METHOD
    envs.enable_envs_cache()


@pytest.mark.parametrize("again", [False, True])
def test_benchmarks_leave_no_variables(again: bool) -> None:
    """The first of the two sets them, as a benchmark in this process does."""
    assert "VLLM_CPU_KVCACHE_SPACE" not in os.environ
    local_engine.prepare_environment()


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_whoever_works_offline_has_the_same_tests(variable: str) -> None:
    """In a process of its own: huggingface_hub reads the variables once."""
    name = "tests/config/test_preflight.py::test_right_configurations_pass"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name],
        cwd=Path(__file__).parents[1],
        env={**os.environ, variable: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
