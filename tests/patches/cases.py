"""Take a patch out for a while, and leave it as it was found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

TakeOut = Callable[[ModuleType], None]


def is_applied(patch: ModuleType) -> bool:
    """Tell whether a patch is in place."""
    if hasattr(patch, "_finder"):
        return patch._finder in sys.meta_path
    return bool(patch._patches)


@contextmanager
def taking_out() -> Iterator[TakeOut]:
    """Yield a function that reverts a patch until the end."""
    taken: list[tuple[ModuleType, bool]] = []

    def revert(patch: ModuleType) -> None:
        taken.append((patch, is_applied(patch)))
        patch.revert()
        assert not is_applied(patch)

    try:
        yield revert
    finally:
        for patch, was_applied in reversed(taken):
            patch.revert()
            if was_applied:
                patch.apply()
