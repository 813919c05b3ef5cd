"""Which process of pytest-xdist runs which tests.

The tests of a file share its engines, so one process runs the whole file, as with ``--dist
loadfile``; but files are given out in the order of the collection (order.py), and the tests of
some files method by method or one by one.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.order import shared_by


class ByFile(LoadScopeScheduling):
    """Give out what shares engines together, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        # Else files with few tests, and those are the long ones, would come last.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of what is given out together with a test."""
        return shared_by(nodeid)
