"""Fixtures of the tests of runners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _no_compilation() -> Iterator[None]:
    """Run vLLM's compiled rank counter as it is written; compiling it takes 15 seconds."""
    with torch.compiler.set_stance("force_eager"):
        yield
