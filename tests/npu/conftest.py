"""Engines on silicon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.ascend.environment import IS_HERE, NPU
from tests.ascend.processes import Engines, Run
from tests.engines import session_folder
from vllm_ascend_spec.cli import env

if IS_HERE:
    # Before anything imports torch or vLLM.
    os.environ.update(NPU, VLLM_PLUGINS=str(env.plugins({})))


@pytest.fixture(scope="session")
def run_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return ``run(case, environment=NPU) -> outcome``; equal engines run once."""
    with closing(Engines(session_folder(tmp_path_factory, "engines"))) as engines:
        yield engines.run
