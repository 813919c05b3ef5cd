"""Count from nothing, and leave the process's counters as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from prometheus_client import REGISTRY


@contextmanager
def apart(module: ModuleType, getter: str) -> Iterator[Any]:
    """Put fresh metrics in the place of a module's.

    Args:
        module: of ``metrics/``.
        getter: its function that returns the process's metrics, which it makes once.
    """
    theirs = getattr(module, getter)()
    REGISTRY.unregister(theirs)
    fresh = type(theirs)()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, getter, lambda: fresh)
        try:
            yield fresh
        finally:
            REGISTRY.unregister(fresh)
            REGISTRY.register(theirs)
