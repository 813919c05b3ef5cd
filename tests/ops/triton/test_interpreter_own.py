"""The Triton backends' own tests that need the interpreter."""

from __future__ import annotations

import pytest

from tests.ops.triton.interpreter import INTERPRETED, run_interpreted

pytest.importorskip("triton", reason="needs the package triton")
pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter is on: run the folder itself")


def test_kernels_under_the_interpreter() -> None:
    run_interpreted("tests/ops/triton/interpreted")


@pytest.mark.nightly  # minutes; by day the same engines have the reference
def test_engines_with_trees_under_the_interpreter() -> None:
    run_interpreted("tests/e2e/test_cuda_trees.py", "-k", "every_node_ends")
