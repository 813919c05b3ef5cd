"""The ops' tests of their contract, on Triton's backend in the interpreter."""

from __future__ import annotations

import os

import pytest

from tests.ops.triton.interpreter import INTERPRETED, run_interpreted

pytest.importorskip("triton", reason="needs the package triton")
pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter is on: run the files")

CONTRACT = ("verify_greedy", "verify_sample", "grammar_mask", "block_rule")
# Hundreds of calls each; interpreted/test_parity.py covers the same ground with fewer.
TOO_SLOW = "not test_equals_the_oracle and not test_filters_keep_ties_together"
# Forty of a second each, which differ in what stands in those rows; by day NaN does, which no sum
# and no maximum hides.
SLOW = "(nan or not test_rows_that_are_not_needed_do_not_matter)"
# Ten cases of two kinds of drafts; by day two of them, and which rows do not matter in two cases of
# each rule. test_verify_sample.py and test_block_rule.py have all of them with other backends.
FEWER = (
    "(triton-4 or triton-9 or not test_rules_agree_where_there_is_at_most_one_draft)"
    " and (triton-1 or triton-3 or not test_rows_that_are_not_needed_do_not_matter)"
)
# What an op says of itself is the same with any backend; by day the CPU's are asked.
SAID_OF_ITSELF = "not opcheck"


def test_contract_under_the_interpreter() -> None:
    left_out = TOO_SLOW
    if "TESTS_COMPILE_ALL" not in os.environ:
        left_out += f" and {SLOW} and {FEWER} and {SAID_OF_ITSELF}"
    run_interpreted(*(f"tests/ops/test_{name}.py" for name in CONTRACT), "-k", left_out)


@pytest.mark.nightly  # the reference accepts as the paper says, and this backend as the reference
def test_acceptance_under_the_interpreter() -> None:
    run_interpreted("tests/ops/test_acceptance.py")
