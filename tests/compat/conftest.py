"""Take a mend out for one test, and leave it as it was found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

TakeOut = Callable[[ModuleType], None]


def is_applied(mend: ModuleType) -> bool:
    """Tell whether a mend is in place."""
    if hasattr(mend, "_finder"):
        return mend._finder in sys.meta_path
    return bool(mend._patches)


@pytest.fixture
def take_out() -> Iterator[TakeOut]:
    """Return a function that reverts a mend until the test is over."""
    taken: list[tuple[ModuleType, bool]] = []

    def revert(mend: ModuleType) -> None:
        taken.append((mend, is_applied(mend)))
        mend.revert()
        assert not is_applied(mend)

    yield revert
    for mend, was_applied in reversed(taken):
        mend.revert()
        if was_applied:
            mend.apply()
