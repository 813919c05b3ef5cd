"""Tests of the Triton backends: some need the interpreter in all of their process, some none."""

from __future__ import annotations

import os

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# The variable must be set before Triton is imported, which vLLM does: test_interpreter.py runs
# the folder in a process of its own.
collect_ignore = [] if INTERPRETED else ["interpreted"]
