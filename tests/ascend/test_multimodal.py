"""A target that reads images (Qwen2.5-VL): answers, drafts and rows are those of a CPU.

A text's token has one position, an image's three; behind an image positions are behind places.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.environment import CPU, ROOT
from tests.ascend.matrix import VL_CASES, Case, K, capture_sizes
from tests.ascend.processes import NOT_GIVEN, tokens_of
from tests.ascend.test_matrix import NPU_PLATFORM, assert_some_drafts_are_accepted
from tests.engines import assert_same
from tests.marks import unless
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

pytestmark = [unless(NO_LOOP_ON_NPU), pytest.mark.timeout(900)]
BY_DAY = ("eagle3-full_decode_only", "eagle3-chunked", "draft_model-full_decode_only")
CASES = [
    pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in VL_CASES
]
KIND = "pictures"


def on_cpu(case: Case, run_engine: Any, *, speculates: bool) -> Any:
    """Return what a CPU makes of the same requests."""
    kept = {name: case.engine[name] for name in ("model", "limit_mm_per_prompt")}
    there = replace(case, mode="eager", engine=kept, watched=False)
    return run_engine(there if speculates else replace(there, method=None, options={}), CPU)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_without_speculation_on_a_cpu(name: str, run_engine: Any) -> None:
    case = VL_CASES[name]
    outcome = run_engine(case)
    assert outcome["platform"] == NPU_PLATFORM
    expected = on_cpu(case, run_engine, speculates=False)
    assert_same(tokens_of(outcome, KIND), tokens_of(expected, KIND))
    assert_some_drafts_are_accepted(outcome["counters"])
