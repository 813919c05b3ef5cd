"""What is reported of a step travels in a text, and comes out again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.step_report import (
    COSTLY,
    FIXED,
    NO_GRAPH_REASONS,
    REJECTED,
    SCHEDULED,
    StepReport,
    TreeCounts,
)

COUNTS = st.integers(0, 10**9)
REPORTS = st.builds(
    StepReport,
    graph=st.sampled_from(["", "FULL", "PIECEWISE", "NONE"]),
    batch_k=st.none() | st.integers(0, 64),
    no_graph_reason=st.sampled_from(["", *NO_GRAPH_REASONS]),
    draft_graph=st.sampled_from(["", "FULL", "PIECEWISE", "NONE"]),
    step_us=COUNTS,
    verification_us=COUNTS,
    drafting_us=COUNTS,
    k=st.none() | st.integers(0, 64),
    k_reason=st.sampled_from(["", FIXED, SCHEDULED, REJECTED, COSTLY, "pays"]),
    method=st.text(),
    verified=st.dictionaries(st.integers(0, 64), st.tuples(COUNTS, COUNTS)),
    tree_depth=COUNTS,
    trees=st.none() | st.builds(TreeCounts, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS),
    is_low=st.booleans(),
    alarms=COUNTS,
    is_paused=st.booleans(),
    pauses=COUNTS,
)


@given(REPORTS)
def test_it_comes_back(report: StepReport) -> None:
    assert StepReport.parse(report.encode()) == report


def test_a_report_of_nothing_is_short() -> None:
    assert StepReport().encode() == "{}"


@pytest.mark.parametrize("text", ["", "FULL", "PIECEWISE", "NONE", "a | b"])
def test_vllms_own_text_is_a_graph_of_which_no_more_is_known(text: str) -> None:
    assert StepReport.parse(text) == StepReport(graph=text)


def test_reports_share_no_counts() -> None:
    one, other = StepReport(), StepReport()
    one.verified[3] = (1, 2)
    assert other.verified == {}
