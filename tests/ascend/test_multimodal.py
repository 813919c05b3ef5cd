"""A target that reads images (Qwen2.5-VL): answers, drafts and rows are those of a CPU.

A text's token has one position, an image's three; behind an image positions are behind places.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.environment import CPU_HERE
from tests.ascend.matrix import Case, K, capture_sizes
from tests.ascend.processes import assert_same_drafts, tokens_of
from tests.ascend.targets.pictures import VL_CASES
from tests.ascend.test_matrix import NPU_PLATFORM, assert_some_drafts_are_accepted
from tests.engines import assert_same
from tests.marks import unless
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

pytestmark = [unless(NO_LOOP_ON_NPU), pytest.mark.timeout(900)]
# A draft model reads pictures as a head does: by day on a CPU, tests/e2e/test_multimodal.py.
BY_DAY = ("eagle3-full_decode_only", "eagle3-chunked")
CASES = [
    pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in VL_CASES
]
KIND = "pictures"


def on_cpu(case: Case, run_engine: Any, *, speculates: bool) -> Any:
    """Return what a CPU makes of the same requests."""
    kept = {name: case.engine[name] for name in ("model", "limit_mm_per_prompt")}
    there = replace(case, mode="eager", engine=kept, requests=(KIND,), watched=False)
    return run_engine(there if speculates else replace(there, method=None, options={}), CPU_HERE)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_without_speculation_on_a_cpu(name: str, run_engine: Any) -> None:
    case = VL_CASES[name]
    outcome = run_engine(case)
    assert outcome["platform"] == NPU_PLATFORM
    expected = on_cpu(case, run_engine, speculates=False)
    for kind in case.requests:
        assert_same(tokens_of(outcome, kind), tokens_of(expected, KIND))
    assert_some_drafts_are_accepted(outcome["counters"])


@pytest.mark.parametrize("name", [name for name in BY_DAY if "chunked" not in name])
def test_drafts_are_those_of_a_cpu(name: str, run_engine: Any) -> None:
    """Behind images, too: drafts read keys and values at the places of a request's tokens."""
    case = VL_CASES[name]
    assert_same_drafts(run_engine(case), on_cpu(case, run_engine, speculates=True), KIND)


# By day a draft model's rows are seen beside a target of text, in test_draft_width.py.
@pytest.mark.parametrize(
    "method", ["eagle3", pytest.param("draft_model", marks=pytest.mark.nightly)]
)
def test_later_draft_steps_have_one_row_for_each_request(method: str, run_engine: Any) -> None:
    outcome = run_engine(VL_CASES[f"{method}-full_decode_only"])
    recorded = {rows[0]: rows[1:-1] for rows in outcome["draft_rows_at_start"] if len(rows) > 2}
    for size in capture_sizes(K):
        assert recorded[size] == [size // (K + 1)] * (K - 1)
    ran = len(outcome["draft_rows_of"][KIND])
    assert ran * 2 < outcome["counters_of"][KIND]["vllm:spec_decode_num_drafts"]
