"""Engines on silicon."""

from __future__ import annotations

import os

import pytest

from tests.ascend.environment import IS_HERE, NPU
from tests.ascend.processes import Engines, Run, session_folder
from vllm_ascend_spec.cli import env

if IS_HERE:
    # Before anything imports torch or vLLM.
    os.environ.update(NPU, VLLM_PLUGINS=str(env.plugins({})))


@pytest.fixture(scope="session")
def run_engine(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return ``run(case, environment=NPU) -> outcome``; equal engines run once."""
    return Engines(session_folder(tmp_path_factory)).run
