"""Which graph a step replayed, and why it had none."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.graphs.step import describe_graph
from vllm_ascend_spec.step_report import (
    NO_GRAPH,
    OTHER,
    OTHER_K,
    PROMPTS,
    UNEVEN,
    WIDE,
    StepReport,
)

ENGINE = {"graph_k": 3, "largest": 32}
PROMPT = {"num_tokens": 16, "num_reqs": 4, "longest": 4, "has_prompts": True}


def decode(num_tokens: int, num_reqs: int, longest: int, graph: str = NO_GRAPH) -> StepReport:
    """Return a step without prompts."""
    batch = {"num_tokens": num_tokens, "num_reqs": num_reqs, "longest": longest}
    return describe_graph(graph, has_prompts=False, **batch, **ENGINE)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (decode(16, 4, 4, "FULL"), StepReport("FULL", 3)),
        (decode(4, 4, 1, "PIECEWISE"), StepReport("PIECEWISE", 0)),
        (decode(13, 4, 4, "PIECEWISE"), StepReport("PIECEWISE")),
        (decode(36, 9, 4), StepReport(NO_GRAPH, 3, WIDE)),
        (decode(33, 9, 4), StepReport(NO_GRAPH, None, WIDE)),
        (decode(13, 4, 4), StepReport(NO_GRAPH, None, UNEVEN)),
        (decode(8, 4, 2), StepReport(NO_GRAPH, 1, OTHER_K)),
        (decode(16, 4, 4), StepReport(NO_GRAPH, 3, OTHER)),
        # A prompt longer than any drafts, or one whose last piece is as long as they are.
        (decode(20, 4, 17), StepReport(NO_GRAPH, None, PROMPTS)),
        (
            describe_graph(
                NO_GRAPH, num_tokens=16, num_reqs=4, longest=4, has_prompts=True, **ENGINE
            ),
            StepReport(NO_GRAPH, None, PROMPTS),
        ),
    ],
)
def test_a_step_is_named(found: StepReport, wanted: StepReport) -> None:
    assert found == wanted
