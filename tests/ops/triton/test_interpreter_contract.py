"""The ops' tests of their contract, on Triton's backend in the interpreter."""

from __future__ import annotations

import pytest

from tests.ops.triton.interpreter import INTERPRETED, run_interpreted

pytest.importorskip("triton", reason="needs the package triton")
pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter is on: run the files")

CONTRACT = ("verify_greedy", "verify_sample", "grammar_mask", "block_rule")
# Hundreds of calls each; interpreted/test_parity.py covers the same ground with fewer.
TOO_SLOW = "not test_equals_the_oracle and not test_filters_keep_ties_together"


def test_contract_under_the_interpreter() -> None:
    run_interpreted(*(f"tests/ops/test_{name}.py" for name in CONTRACT), "-k", TOO_SLOW)


@pytest.mark.nightly  # the reference accepts as the paper says, and this backend as the reference
def test_acceptance_under_the_interpreter() -> None:
    run_interpreted("tests/ops/test_acceptance.py")
