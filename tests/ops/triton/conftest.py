"""Tests of the Triton backends: some need the interpreter in all of their process, some none."""

from __future__ import annotations

from tests.ops.triton.interpreter import INTERPRETED

# The variable must be set before Triton is imported, which vLLM does: test_interpreter_own.py runs
# the folder in a process of its own.
collect_ignore = [] if INTERPRETED else ["interpreted"]
