"""What the tests of one session share: lowered and compiled kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.triton_ascend.lowering import Variant, lower


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where kernels are kept for this session."""
    return tmp_path_factory.mktemp("triton_ascend")


@pytest.fixture(scope="session")
def launched(folder: Path) -> dict[Variant, Path]:
    """Return every variant that the host code launches at real sizes, lowered."""
    pytest.importorskip("triton", reason="the kernels need the package triton")
    from tests.ops.triton_ascend.scenarios import launched_variants

    return lower(launched_variants(), folder)
