"""Take a mend out for a while, and leave it as it was found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

TakeOut = Callable[[ModuleType], None]


def is_applied(mend: ModuleType) -> bool:
    """Tell whether a mend is in place."""
    if hasattr(mend, "_finder"):
        return mend._finder in sys.meta_path
    return bool(mend._patches)


@contextmanager
def taking_out() -> Iterator[TakeOut]:
    """Yield a function that reverts a mend until the end."""
    taken: list[tuple[ModuleType, bool]] = []

    def revert(mend: ModuleType) -> None:
        taken.append((mend, is_applied(mend)))
        mend.revert()
        assert not is_applied(mend)

    try:
        yield revert
    finally:
        for mend, was_applied in reversed(taken):
            mend.revert()
            if was_applied:
                mend.apply()
