"""Who still holds the ids of requests that have ended."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Collection
from typing import Any

CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def holders_of(ids: Collection[str]) -> list[str]:
    """Return what containers hold any of some ids, and whose they are.

    Args:
        ids: those that nobody should know any more; itself it does not count.
    """
    gc.collect()
    holding = [
        held
        for held in gc.get_objects()
        if isinstance(held, CONTAINERS) and held is not ids and _has_some(held, ids)
    ]
    return sorted(_name_of(held) for held in holding)


def _has_some(held: Any, ids: Collection[str]) -> bool:
    try:
        return any(type(key) is str and key in ids for key in held)
    except RuntimeError:  # another thread changes it
        return False


def _name_of(held: Any) -> str:
    """Return what a container is, and the types of those that refer to it."""
    owners = {type(owner).__name__ for owner in gc.get_referrers(held)} - {"frame", "list"}
    return f"{type(held).__name__} of {len(held)} of {', '.join(sorted(owners))}"
