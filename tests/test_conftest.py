"""What conftest.py does for every test."""

from __future__ import annotations

import pytest
from vllm import envs


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_variables_are_read_anew(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The first of the two leaves a cache behind, as an engine in this process does."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", method)
    assert method == envs.VLLM_WORKER_MULTIPROC_METHOD
    envs.enable_envs_cache()
