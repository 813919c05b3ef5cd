"""Engines on a GPU."""

from __future__ import annotations

import pytest

from tests.ascend.processes import Engines, Run
from tests.engines import session_folder


@pytest.fixture(scope="session")
def run_engine(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return ``run(case, environment) -> outcome``; equal engines run once."""
    return Engines(session_folder(tmp_path_factory, "engines")).run
