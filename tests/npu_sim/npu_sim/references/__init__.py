"""What each device op computes, written in plain aten ops from the op's documentation."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from npu_sim.references.registry import REFERENCES


def load_all() -> dict[str, Callable]:
    """Import every module of this package and return the table that they fill."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return REFERENCES
