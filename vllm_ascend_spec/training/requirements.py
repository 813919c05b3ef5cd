"""What ``train`` needs beside vLLM, and how to get it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

PYTHON = (3, 11)
TRAINER = ("speculators", "hs_connectors")
EXTRA = ("datasets", "loguru", "pydantic_settings", "typer")
INSTALL = (
    'pip install "vllm-ascend-spec[train]" && '
    "pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0"
)


def missing() -> str | None:
    """Return one line that says what is missing and how to install it, or None."""
    absent = [name for name in (*TRAINER, *EXTRA) if find_spec(name) is None]
    if not absent:
        return None
    if sys.version_info < PYTHON:
        return f"{', '.join(absent)} missing; speculators needs Python 3.11 or later"
    return f"{', '.join(absent)} missing; valid: {INSTALL}"
