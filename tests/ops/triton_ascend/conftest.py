"""What the tests of one session share: lowered and compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ops.triton_ascend.lowering import Variant, lower


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where kernels are kept for this session, one folder for all its processes."""
    base = tmp_path_factory.getbasetemp()
    # pytest-xdist gives each of its processes a folder inside the session's.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "triton_ascend"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def launched(folder: Path) -> dict[Variant, Path]:
    """Return every variant that the host code launches at real sizes, lowered."""
    pytest.importorskip("triton", reason="the kernels need the package triton")
    from tests.ops.triton_ascend.scenarios import launched_variants

    return lower(launched_variants(), folder)
